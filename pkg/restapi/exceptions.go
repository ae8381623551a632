package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// exceptions returns the source of the exceptions that are in force.
func (a operations) exceptions() active.Source {
	return active.Source{Reader: a.Reader, Clock: a.Clock, Statements: a.Statements}
}

// imageExceptions selects the findings of an image that are suppressed: those that exceptions cover under each of the image's names. With the engine's
// report, it selects what announced reports add as well.
func (a operations) imageExceptions(ctx context.Context, found *result) (store.ImageExceptions, error) {
	set, _, err := a.exceptions().InForce(ctx, found.scan.Namespace)
	if err != nil {
		return store.ImageExceptions{}, fmt.Errorf("reading the exceptions of namespace %s: %w", found.scan.Namespace, err)
	}
	e := store.ImageExceptions{Exceptions: set, Images: found.imageNames()}
	if _, isExternal := store.SourceOf(found.Engine); !isExternal {
		e.Announced = store.AnnouncedReports{Namespace: found.scan.Namespace, Image: found.key, Sources: found.scanner.Settings().AnnouncedSources()}
	}
	return e, nil
}

// imageNames returns the names by which workloads run the image now. If no workload runs it, they are the references in the ImageScan.
func (r *result) imageNames() (names []exception.Image) {
	if len(r.Names) > 0 {
		return r.Names
	}
	for _, text := range r.scan.Spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			names = append(names, exception.Image{Reference: ref, Digest: r.key.Digest, Manifest: r.Manifest})
		}
	}
	return names
}

// exceptionsHash returns 16 hexadecimal digits that identify the exceptions and the names of an image.
func exceptionsHash(e store.ImageExceptions) string {
	sum := sha256.New()
	for _, exception := range e.Exceptions.All() {
		fmt.Fprintf(sum, "%+v\n", exception)
	}
	fmt.Fprintf(sum, "%+v", e.Images)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func exceptionOf(e *exception.Exception) *restv1.Exception {
	if e == nil {
		return nil
	}
	answer := &restv1.Exception{
		Kind: e.Kind(), Name: e.Name, Source: restv1.ExceptionSource(e.Source()), Signer: e.Signer, Status: e.Status, Justification: e.Justification, Reason: e.Reason,
		ExpirationTime: e.Expires,
	}
	return answer
}
