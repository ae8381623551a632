package clairhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

const (
	// scansPerPage are about a megabyte.
	scansPerPage = 250
	// maxScans bounds what is listed of one namespace. The operator asks Clair itself about the rest.
	maxScans = 20_000
	// indexAge is how long a list is used. An ImageScan that was marked within it is not marked again: what several
	// notifications of one delivery tell of, Clair had before the first of them. A new ImageScan needs no mark: what it
	// gets is new.
	indexAge   = 10 * time.Second
	maxIndexes = 8
)

// index is what ImageScans a Scanner has. It is used by one task at a time.
type index struct {
	// names by the digests that Clair may know the image by.
	names map[string][]string
	// marked are names of ImageScans that carry the mark, or got it.
	marked map[string]bool
}

// index lists the Scanner's ImageScans, or takes a list that was made a moment ago.
func (s *Server) index(ctx context.Context, t task) (*index, error) {
	if found, ok := s.indexes.Get(t.uid); ok {
		return found.(*index), nil
	}
	made := &index{names: map[string][]string{}, marked: map[string]bool{}}
	var page v1alpha1.ImageScanList
	for read := 0; ; {
		options := &client.ListOptions{Namespace: t.scanner.Namespace, Limit: scansPerPage, Continue: page.Continue}
		page = v1alpha1.ImageScanList{}
		if err := s.Cluster.List(ctx, &page, options); err != nil {
			return nil, fmt.Errorf("cannot list ImageScans: %w", err)
		}
		for i := range page.Items {
			made.add(t.scanner.Name, &page.Items[i])
		}
		if read += len(page.Items); page.Continue == "" {
			break
		}
		if read >= maxScans {
			s.say(slog.LevelWarn, t.scanner, "the namespace has more ImageScans than are looked through for a webhook", "limit", maxScans)
			break
		}
	}
	s.indexes.Add(t.uid, made, indexAge)
	return made, nil
}

// add notes an ImageScan, if it is the Scanner's.
func (i *index) add(scanner string, scan *v1alpha1.ImageScan) {
	if scan.Spec.Scanner != scanner {
		return
	}
	i.names[scan.Spec.Digest] = append(i.names[scan.Spec.Digest], scan.Name)
	if platform := scan.Status.PlatformDigest; platform != "" && platform != scan.Spec.Digest {
		i.names[platform] = append(i.names[platform], scan.Name)
	}
	if _, marked := scan.Annotations[v1alpha1.AnnotationMatchRequested]; marked {
		i.marked[scan.Name] = true
	}
}

// mark has the operator look for newer data. An ImageScan that has gone meanwhile needs none.
func (s *Server) mark(ctx context.Context, t task, name string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationMatchRequested: t.id.String()}}})
	if err != nil {
		return err
	}
	scan := &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: t.scanner.Namespace, Name: name}}
	if err := s.Cluster.Patch(ctx, scan, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot mark ImageScan %s: %w", name, err)
	}
	return nil
}
