package openreports

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// round is one round of a Writer.
type round struct {
	*Writer
	exceptions func(namespace string) exception.Set
	// reported has the results of Reported by scanner. In a large cluster, a ClusterScanner's is read once and not for each namespace.
	reported map[string]map[store.NamespacedImage][]string
}

// sync makes the Reports of a namespace equal to what is known about its workloads. A Report that cannot be written does not delay the others: the
// error has the number of these Reports and the first of their errors.
func (r *round) sync(ctx context.Context, namespace string) error {
	existing := map[string]*metav1.PartialObjectMetadata{}
	if err := r.list(ctx, namespace, func(report *metav1.PartialObjectMetadata) { existing[report.Name] = report }); err != nil {
		return err
	}
	inForce, handled, failed := r.exceptions(namespace), 0, failures{}
	asked := store.WorkloadsQuery{Seen: store.Sight{Namespaces: []string{namespace}}, Exceptions: inForce}
	for cursor := (store.WorkloadCursor{}); ; {
		page, err := r.Store.WorkloadsPage(ctx, asked, cursor, pageSize)
		if err != nil {
			return err
		}
		for i := range page.Workloads {
			one, err := r.read(ctx, &page.Workloads[i], inForce)
			if err != nil {
				return err
			}
			name := reportName(one.kind, one.name)
			failed.add(r.apply(ctx, one, existing[name]))
			delete(existing, name)
		}
		if handled += len(page.Workloads); page.Next == nil {
			break
		}
		if handled >= maxReports {
			r.Log.Info("Not every workload has a Report: those with the worst findings have one", "namespace", namespace, "workloads", page.Total, "reports", handled)
			break
		}
		cursor = *page.Next
	}
	for _, report := range existing {
		failed.add(r.delete(ctx, report))
	}
	r.suppressing[namespace] = inForce.Key()
	return failed.err()
}

// failures counts errors and keeps the first one.
type failures struct {
	count int
	first error
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	if f.count++; f.first == nil {
		f.first = err
	}
}

func (f *failures) err() error {
	if f.first == nil {
		return nil
	}
	return fmt.Errorf("%d Reports could not be written or deleted: %w", f.count, f.first)
}

// read reads what the Report of a workload is made of.
func (r *round) read(ctx context.Context, running *store.RunningWorkload, inForce exception.Set) (w workload, err error) {
	w = workload{namespace: running.Namespace, kind: running.Kind, name: running.Name}
	asked := store.WorkloadQuery{Namespace: w.namespace, Kind: w.kind, Name: w.name, Exceptions: inForce}
	// A bound on the findings would count the suppressed ones, which come last here.
	w.details, err = r.Store.Workload(ctx, asked, maxFindings)
	if w.tooMany = errors.Is(err, store.ErrTooManyCandidates); w.tooMany {
		w.details, err = store.WorkloadDetails{Counts: running.Counts, Suppressed: running.Suppressed}, nil
	}
	if err != nil {
		return workload{}, err
	}
	if w.unproven, err = r.isUnproven(ctx, running); err != nil {
		return workload{}, err
	}
	for _, img := range running.Images {
		gaps, reported, err := r.gapsOf(ctx, img, w.namespace)
		if err != nil {
			return workload{}, err
		}
		if reported && len(gaps) == 0 {
			continue
		}
		of := gapImage{img, gaps}
		if !slices.ContainsFunc(w.gaps, func(known gapImage) bool {
			return known.Container == img.Container && known.Key == img.Key && slices.Equal(known.gaps, gaps)
		}) {
			w.gaps = append(w.gaps, of)
		}
	}
	return w, nil
}

// isUnproven reports whether a workload may have findings that its newest results lack: the data of a scanner has an anomaly, or lacks a finding without a
// confirmation.
func (r *round) isUnproven(ctx context.Context, running *store.RunningWorkload) (bool, error) {
	seen := map[string]bool{}
	for _, img := range running.Images {
		if seen[img.Scanner] {
			continue
		}
		seen[img.Scanner] = true
		facts, err := r.Store.WorkloadAbsence(ctx, img.Scanner, running.Namespace, running.Kind, running.Name)
		// Images without a result, and what a result does not cover, are results of their own.
		facts.Present, facts.Complete, facts.SameEngine, facts.SourcesReported = false, true, true, true
		if err != nil || evidence.Of(facts.Facts) == evidence.Unknown {
			return true, err
		}
	}
	return false, nil
}

// gapsOf returns what an image of a namespace contains and the result of a scanner does not cover, and whether there is a result.
func (r *round) gapsOf(ctx context.Context, img store.WorkloadImage, namespace string) (gaps []string, reported bool, err error) {
	all, known := r.reported[img.Scanner]
	if !known {
		if all, err = r.Reported(ctx, img.Scanner); err != nil {
			return nil, false, err
		}
		r.reported[img.Scanner] = all
	}
	gaps, reported = all[store.NamespacedImage{Namespace: namespace, Key: img.Key}]
	return gaps, reported, nil
}

// apply writes the Report of a workload, unless before has the same content. Nothing is written in a namespace that is being deleted, and never a Report
// that somebody else has made under the same name.
func (r *round) apply(ctx context.Context, w workload, before *metav1.PartialObjectMetadata) error {
	report := w.report(r.MaxResults, r.Clock.Now())
	if before != nil && before.Annotations[annotationContent] == report.Annotations[annotationContent] {
		return nil
	}
	owner, err := ownerOf(ctx, r.Client, w)
	if err != nil {
		return err
	}
	if owner != nil {
		report.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if before != nil {
		report.ResourceVersion = before.ResourceVersion
		err = r.Client.Update(ctx, report)
	} else {
		err = r.Client.Create(ctx, report)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		r.Log.Info("A Report is not written: there is another one of its name without the label "+labelManagedBy, "namespace", report.Namespace, "name", report.Name)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	return err
}
