package rest

import (
	"context"
	"fmt"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Exceptions gives the exceptions that are in force in a namespace now.
type Exceptions interface {
	InForce(ctx context.Context, namespace string) (set exception.Set, next time.Time, err error)
}

// excepting says which findings of an image are covered: by each name under which pods run it.
func (a operations) excepting(ctx context.Context, found *result) (store.Excepting, error) {
	set, _, err := a.Exceptions.InForce(ctx, found.scan.Namespace)
	if err != nil {
		return store.Excepting{}, fmt.Errorf("reading the exceptions of namespace %s: %w", found.scan.Namespace, err)
	}
	return store.Excepting{Exceptions: set, Images: found.names()}, nil
}

// names are those by which pods run the image.
func (r *result) names() (names []exception.Image) {
	for _, text := range r.scan.Spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			names = append(names, exception.Image{Reference: ref, Digest: r.key.Digest})
		}
	}
	return names
}

// exceptionsFor reads the exceptions of each namespace once, when it is first asked for. The error is that of the first namespace whose
// exceptions could not be read.
func (a operations) exceptionsFor(ctx context.Context) (of func(namespace string) exception.Set, failed func() error) {
	sets := map[string]exception.Set{}
	var problem error
	of = func(namespace string) exception.Set {
		set, known := sets[namespace]
		if !known && problem == nil {
			if set, _, problem = a.Exceptions.InForce(ctx, namespace); problem != nil {
				problem = fmt.Errorf("reading the exceptions of namespace %s: %w", namespace, problem)
			}
			sets[namespace] = set
		}
		return set
	}
	return of, func() error { return problem }
}

func exceptionOf(e *exception.Exception) *restv1.Exception {
	if e == nil {
		return nil
	}
	answer := &restv1.Exception{
		Kind: "VulnerabilityException", Name: e.Name, Status: e.Status, Justification: e.Justification, Reason: e.Reason, Expires: e.Expires,
	}
	if e.Namespace == "" {
		answer.Kind = "ClusterVulnerabilityException"
	}
	return answer
}
