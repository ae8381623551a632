package clairwebhook

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
	// scansPerPage is the page size of a list request: about a megabyte.
	scansPerPage = 250
	// maxScans bounds how many ImageScans of one namespace are listed. The operator's own polling of Clair covers the rest.
	maxScans = 20_000
	// indexAge is how long an index is reused. In that time an ImageScan is marked only once: Clair had the data of all notifications of
	// one delivery before it sent the first of them. An ImageScan that is created in that time needs no mark, since its first report uses
	// the new data.
	indexAge   = 10 * time.Second
	maxIndexes = 8
)

// index maps image digests to a Scanner's ImageScans. It is used by one task at a time.
type index struct {
	// names are those of ImageScans, by each digest under which Clair may know the image.
	names map[string][]string
	// marked are the names of ImageScans that already have the annotation.
	marked map[string]bool
}

// index returns the index of the Scanner's ImageScans. It may be up to indexAge old.
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
			made.addImageScan(t.scanner.Name, &page.Items[i])
		}
		if read += len(page.Items); page.Continue == "" {
			break
		}
		if read >= maxScans {
			s.logOncePerMinute(slog.LevelWarn, t.scanner, "the namespace has more ImageScans than a webhook may search", "limit", maxScans)
			break
		}
	}
	s.indexes.Add(t.uid, made, indexAge)
	return made, nil
}

// addImageScan adds an ImageScan to the index, if it belongs to the Scanner.
func (i *index) addImageScan(scanner string, scan *v1alpha1.ImageScan) {
	if scan.Spec.ScannerRef != (v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: scanner}) {
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

// mark annotates an ImageScan, so that the operator checks for newer data. A deleted ImageScan is no error.
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
