package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/vexfile"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// preview prints which findings the exceptions will suppress, with the operator's own comparison. Findings that another exception suppresses
// already are not shown; those that an earlier version of the same exception suppresses are.
func (s *session) preview(ctx context.Context, namespace string, changes []change) error {
	api, err := s.connect(ctx)
	var noToken *connect.NoTokenError
	if errors.As(err, &noToken) {
		s.remark("The API server accepts it. Which findings it will suppress is not known: %v.", noToken)
		return nil
	}
	if err != nil {
		return err
	}
	defer api.Close()
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	scans, err := listScans(ctx, cluster, namespace)
	if err != nil {
		return err
	}
	params := findingFilter{suppressed: true}.parameters(namespace)
	if len(changes) == 1 && len(changes[0].spec.Vulnerabilities) == 1 {
		params.ID = ptr.To(changes[0].spec.Vulnerabilities[0])
	}
	found, err := collect(ctx, api, scans, params)
	if err != nil {
		return err
	}
	references := map[string][]string{}
	for i := range scans {
		references[scans[i].Namespace+"\x00"+scans[i].Spec.Digest] = scans[i].Spec.References
	}
	for _, ch := range changes {
		open := slices.DeleteFunc(slices.Clone(found), func(f imageFinding) bool { return f.Finding.Exception != nil && !ch.is(f.Finding.Exception) })
		suppressed := suppressedBy(ch.spec, open, references, s.Clock.Now())
		s.remark("%s will suppress %s.", ch.title(), count(len(suppressed), "finding", "findings"))
		if len(suppressed) == 0 {
			s.remark("No finding fits all its fields: %suse/exceptions.md#which-findings-it-suppresses", docs)
		}
		if err := output.Write(s.warnings(), output.FormatTable, findingTable(suppressed, namespace == ""), nil); err != nil {
			return err
		}
	}
	missing, err := gaps(ctx, api, namespace)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		s.remark("It may suppress more later. Not known: %s", strings.Join(missing, "; "))
	}
	return nil
}

// is reports whether a finding's exception is the one that is changed.
func (ch change) is(e *restv1.Exception) bool {
	return e.Name == ch.object.GetName() && e.Kind == newException(ch.object.GetNamespace(), vexfile.Draft{}).GetObjectKind().GroupVersionKind().Kind
}

// suppressedBy returns the findings that an exception suppresses. An image has the names that its ImageScan lists.
func suppressedBy(spec v1alpha1.ExceptionSpec, found []imageFinding, references map[string][]string, now time.Time) (suppressed []imageFinding) {
	e := exception.Exception{Status: string(spec.Status), Vulnerabilities: spec.Vulnerabilities, Images: spec.Images}
	for _, p := range spec.Packages {
		e.Packages = append(e.Packages, exception.Package{Name: p.Name, Version: p.Version, Type: p.Type})
	}
	set := exception.NewSet([]exception.Exception{e}, now)
	for _, f := range found {
		var names []exception.Image
		for _, text := range references[f.Namespace+"\x00"+f.Digest] {
			if reference, err := image.ParseReference(text); err == nil {
				names = append(names, exception.Image{Reference: reference, Digest: f.Digest})
			}
		}
		if set.SuppressedUnderAllNames(names, f.sortable) != nil {
			suppressed = append(suppressed, f)
		}
	}
	return suppressed
}

// writeManifests writes the exceptions as manifests, for a repository of manifests.
func (s *session) writeManifests(changes []change) error {
	var items []any
	for _, ch := range changes {
		fresh := newException(ch.object.GetNamespace(), vexfile.Draft{Name: ch.object.GetName()})
		items = append(items, manifest{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: fresh.GetObjectKind().GroupVersionKind().Kind,
			Metadata: manifestMetadata{Namespace: fresh.GetNamespace(), Name: fresh.GetName()}, Spec: ch.spec,
		})
	}
	if len(items) == 1 {
		return s.write(output.Table{}, items[0])
	}
	return s.write(output.Table{}, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// manifest is an exception without what the API server adds.
type manifest struct {
	APIVersion string                 `json:"apiVersion"`
	Kind       string                 `json:"kind"`
	Metadata   manifestMetadata       `json:"metadata"`
	Spec       v1alpha1.ExceptionSpec `json:"spec"`
}

type manifestMetadata struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}
