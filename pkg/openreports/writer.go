// Package openreports writes what is known about workloads as Reports of OpenReports (https://openreports.io), which tools such as Policy Reporter
// show.
//
// A Report is a copy for other tools: the operator reads none of them. There is one for each workload, in the workload's namespace. Its size is
// bounded, and it is written only when its content changes: details belong into the store, and not into etcd. The package knows no engine.
package openreports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// maxReports bounds the Reports in one namespace, whose users may create any number of workloads. Those with the worst findings have one.
	maxReports = 1000
	// roundBudget is how long one round works on namespaces. The others wait for the next round, so that new vulnerability data do not load the
	// store without a pause.
	roundBudget = 10 * time.Second
	// fullInterval is how often all namespaces are compared with their Reports, since others may have changed or deleted these.
	fullInterval = time.Hour
	// pageSize is the size of a page of workloads, or of a list request.
	pageSize = 100
)

// Store is the part of the store that a Writer uses.
type Store interface {
	ChangesSince(ctx context.Context, after store.ChangePosition) (store.Changes, error)
	WorkloadsPage(ctx context.Context, asked store.WorkloadsQuery, after store.WorkloadCursor, limit int) (store.WorkloadsPage, error)
	Workload(ctx context.Context, asked store.WorkloadQuery, limit int) (store.WorkloadDetails, error)
	WorkloadAbsence(ctx context.Context, scanner, namespace, kind, name string) (store.WorkloadFacts, error)
}

// Exceptions returns the exceptions that are in force now, by namespace.
type Exceptions interface {
	AllNamespaces(ctx context.Context) (func(namespace string) exception.Set, error)
}

// Writer writes Reports. Run must be called by one goroutine of the leader.
type Writer struct {
	// Client must not read from a cache.
	Client     client.Client
	Store      Store
	Exceptions Exceptions
	// Reported returns the images of which a scanner, given by its UID, has a report, with what they contain and the report does not cover.
	Reported func(ctx context.Context, scanner string) (map[store.NamespacedImage][]string, error)
	Clock    clock.PassiveClock
	Log      logr.Logger
	// Remove deletes all Reports of the operator, and writes none.
	Remove bool
	// MaxResults bounds the findings in a Report.
	MaxResults int
	// Watched are the namespaces that the operator is limited to; empty for all.
	Watched []string
	// OnProblem is called when Problem begins or ends to report something.
	OnProblem func(ctx context.Context)

	problem atomic.Pointer[problem]
	// removed is true when nothing more has to be removed.
	removed bool
	// position is that of the store's changes that were seen. full is when all namespaces are compared again.
	position store.ChangePosition
	full     time.Time
	// waiting has the namespaces to compare, and since when they wait. suppressing has the key of the exceptions that a namespace was compared with.
	waiting     map[string]time.Time
	suppressing map[string]string
}

// problem is why Reports cannot be written.
type problem struct{ reason, message string }

// Problem returns the reason and the message of a condition while Reports cannot be written; empty while they can. It names no namespace. It is safe for concurrent use.
func (w *Writer) Problem() (reason, message string) {
	if p := w.problem.Load(); p != nil {
		return p.reason, p.message
	}
	return "", ""
}

// Run makes one round: it compares namespaces in which something has changed with their Reports, for some roundBudget. A namespace that fails waits for
// the next round. Errors that Problem reports are not returned.
func (w *Writer) Run(ctx context.Context) error {
	work := w.write
	if w.Remove {
		work = w.remove
	}
	err := work(ctx)
	var found *problem
	switch {
	case isMissing(err):
		found = &problem{v1alpha1.ReasonOpenReportsMissing, "no Reports are written: the cluster does not have the CustomResourceDefinition reports.openreports.io. " +
			"Install it, or set openReports.mode of the operator's configuration to None"}
		w.full = time.Time{} // once the cluster has it, all are written
	case errors.Is(err, errForbidden):
		found = &problem{v1alpha1.ReasonOpenReportsForbidden, "Reports are not written: the operator may not list reports.openreports.io. Grant it the ClusterRole " +
			"scanner-operator-openreports, or set openReports.mode of the operator's configuration to None"}
	case err != nil:
		return err
	}
	if before := w.problem.Swap(found); (before == nil) != (found == nil) || found != nil && *found != *before {
		if found != nil {
			w.Log.Info(found.message, "reason", found.reason, "error", err.Error())
		}
		w.OnProblem(ctx)
	}
	return nil
}

var (
	errNoResource = errors.New("the API server does not know reports.openreports.io")
	// errForbidden is not for what admission refuses, such as a quota, which users of one namespace can cause.
	errForbidden = errors.New("listing reports.openreports.io is forbidden")
)

// isMissing reports whether a request failed because the cluster has no Reports.
func isMissing(err error) bool { return meta.IsNoMatchError(err) || errors.Is(err, errNoResource) }

// write compares the namespaces that wait, those first that have waited longest.
func (w *Writer) write(ctx context.Context) error {
	exceptions, err := w.Exceptions.AllNamespaces(ctx)
	if err != nil {
		return err
	}
	if err := w.collectWaiting(ctx, exceptions); err != nil {
		return err
	}
	namespaces := slices.SortedFunc(maps.Keys(w.waiting), func(a, b string) int { return cmp.Or(w.waiting[a].Compare(w.waiting[b]), cmp.Compare(a, b)) })
	current := &round{Writer: w, exceptions: exceptions, reported: map[string]map[store.NamespacedImage][]string{}}
	var failed []error
	for end := w.Clock.Now().Add(roundBudget); len(namespaces) > 0 && !w.Clock.Now().After(end); namespaces = namespaces[1:] {
		namespace := namespaces[0]
		if err := current.sync(ctx, namespace); err != nil {
			w.waiting[namespace] = w.Clock.Now() // the others come first in the next round
			if failed = append(failed, fmt.Errorf("namespace %s: %w", namespace, err)); isMissing(err) || ctx.Err() != nil {
				break
			}
			continue
		}
		delete(w.waiting, namespace)
	}
	return errors.Join(failed...)
}

// collectWaiting adds the namespaces with changes in the store or in their exceptions to waiting, and every fullInterval all that have Reports or
// images.
func (w *Writer) collectWaiting(ctx context.Context, exceptions func(namespace string) exception.Set) error {
	now, after, found := w.Clock.Now(), w.position, []string(nil)
	full := !now.Before(w.full)
	if full {
		after = store.ChangePosition{Message: math.MaxInt64} // without messages
		for _, namespace := range w.namespaces() {
			err := w.list(ctx, namespace, func(report *metav1.PartialObjectMetadata) { found = append(found, report.Namespace) })
			if err != nil {
				return err
			}
		}
	}
	changes, err := w.Store.ChangesSince(ctx, after)
	if err != nil {
		return err
	}
	if w.position = changes.Position; full {
		w.full, w.waiting, w.suppressing = now.Add(fullInterval), map[string]time.Time{}, map[string]string{}
	}
	found = append(found, changes.Namespaces...)
	for namespace, key := range w.suppressing {
		if exceptions(namespace).Key() != key {
			found = append(found, namespace)
		}
	}
	for _, namespace := range found {
		if _, waits := w.waiting[namespace]; !waits {
			w.waiting[namespace] = now
		}
	}
	return nil
}

// namespaces returns the namespaces to list Reports in; one empty name for all.
func (w *Writer) namespaces() []string {
	if len(w.Watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return w.Watched
}

// list visits the metadata of the operator's Reports in a namespace, or in all if it is empty.
func (w *Writer) list(ctx context.Context, namespace string, visit func(*metav1.PartialObjectMetadata)) error {
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(reports.SchemeGroupVersion.WithKind("ReportList"))
		err := w.Client.List(ctx, &page, client.InNamespace(namespace), client.MatchingLabels{labelManagedBy: managedBy}, client.Limit(pageSize), client.Continue(next))
		switch {
		case apierrors.IsNotFound(err): // the CRD was removed after it was used
			return errNoResource
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w: %w", errForbidden, err)
		case err != nil:
			return err
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// remove deletes all Reports of the operator.
func (w *Writer) remove(ctx context.Context) error {
	if w.removed {
		return nil
	}
	var failed []error
	for _, namespace := range w.namespaces() {
		var all []*metav1.PartialObjectMetadata
		err := w.list(ctx, namespace, func(report *metav1.PartialObjectMetadata) { all = append(all, report) })
		if isMissing(err) {
			break
		}
		failed = append(failed, err)
		for _, report := range all {
			failed = append(failed, w.delete(ctx, report))
		}
	}
	err := errors.Join(failed...)
	w.removed = err == nil
	return err
}

func (w *Writer) delete(ctx context.Context, report *metav1.PartialObjectMetadata) error {
	report.SetGroupVersionKind(reports.SchemeGroupVersion.WithKind("Report"))
	return client.IgnoreNotFound(w.Client.Delete(ctx, report, client.Preconditions{UID: &report.UID}))
}
