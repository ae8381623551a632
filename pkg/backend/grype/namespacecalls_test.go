package grype

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestHangingWebhookDelaysOnlyItsNamespace: while a namespace's admission hangs, other images get their Jobs and the Job loop continues. The Job
// being created is neither created twice nor given up.
func TestHangingWebhookDelaysOnlyItsNamespace(t *testing.T) {
	e := newEngine(t)
	mine, other := private("web", "pull"), public("other")
	e.setUsed(mine, other)
	asked, answer, reported := make(chan struct{}), make(chan struct{}), make(chan string)
	e.onCreate = func(o client.Object) error {
		if o.GetNamespace() == "shop" {
			close(asked)
			<-answer
		}
		return nil
	}
	go func() { reported <- e.index(mine) }()
	<-asked
	if got := e.index(other); got != v1alpha1.ReasonCataloging {
		t.Errorf("another namespace's image gets %q, want a Job", got)
	}
	e.runJobsOnce()
	if got := e.index(mine); got != v1alpha1.ReasonPending {
		t.Errorf("who asks for the image again gets %q, want %q", got, v1alpha1.ReasonPending)
	}
	close(answer)
	if got := <-reported; got != v1alpha1.ReasonCataloging {
		t.Errorf("after the answer the image's state is %q, want %q", got, v1alpha1.ReasonCataloging)
	}
	if got := len(e.jobs("catalog")); got != 2 {
		t.Errorf("%d Jobs, want one for each image", got)
	}
}

// TestHangingDeletionDelaysOnlyItsNamespace: while a namespace's admission hangs on the deletion of a Job, Jobs of other namespaces are
// processed. The deletion is requested once.
func TestHangingDeletionDelaysOnlyItsNamespace(t *testing.T) {
	e := newEngine(t)
	mine, other := private("web", "pull"), public("other")
	e.setUsed(mine, other)
	e.index(mine)
	e.index(other)
	e.must(e.Store.DeleteScanners(t.Context(), []string{scannerUID}))
	asked, answer, timeout := make(chan struct{}, 2), make(chan struct{}), make(chan time.Time)
	var impatient sync.Once
	e.onDelete = func(o client.Object) error {
		if o.GetNamespace() == "shop" {
			asked <- struct{}{}
			<-answer
			return nil
		}
		impatient.Do(func() { <-asked; close(timeout) })
		return nil // a second request, if the second run comes before the end of the first is recorded
	}
	e.runner.after = func(time.Duration) <-chan time.Time { return timeout }
	for look := range 2 {
		if err := e.reconcileJobs(t.Context()); err == nil {
			t.Errorf("look %d: nothing is said of the namespace that does not answer", look+1)
		}
	}
	close(answer)
	e.runner.running.Wait()
	if got := len(asked); got != 0 {
		t.Errorf("the namespace that does not answer is asked %d times more", got)
	}
	if got := e.records(); len(got) != 0 {
		t.Errorf("records %q after the answer, want none", got)
	}
}

// TestErrorsOfSlowNamespaceAreLogged: the errors of a namespace that answers after the run has ended are logged once, with the namespace. Each
// error is either returned or logged.
func TestErrorsOfSlowNamespaceAreLogged(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	logger := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	timeout, answer := make(chan time.Time), make(chan struct{})
	runner := namespaceRunner{log: logger, after: func(time.Duration) <-chan time.Time { return timeout }}
	jobs := []store.Job{{Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "b"}, {Namespace: "blog", Name: "c"}}
	do := func(job store.Job) error {
		if job.Namespace == "shop" {
			<-answer
			return errors.New("denied " + job.Name)
		}
		defer close(timeout)
		return errors.New("conflict " + job.Name)
	}
	err := runner.run(t.Context(), jobs, do)
	if err == nil || strings.Contains(err.Error(), "denied") || !strings.Contains(err.Error(), `"shop"`) {
		t.Fatalf("the run returned %v, want that shop is slow", err)
	}
	close(answer)
	runner.running.Wait()
	logged := strings.Join(lines, "\n")
	for _, want := range []string{`"namespace"="shop"`, "denied a", "denied b"} {
		if strings.Count(logged, want) != 1 {
			t.Errorf("log lines %q, want %q once", lines, want)
		}
	}
	// blog may answer just before or just after the end of the run.
	if all := err.Error() + logged; strings.Count(all, "conflict c") != 1 {
		t.Errorf("returned %v and logged %q, want the error of blog once", err, lines)
	}
}

// TestAPICallsHaveDeadlines: every call of the API server has a deadline.
func TestAPICallsHaveDeadlines(t *testing.T) {
	calls := map[string]bool{}
	note := func(ctx context.Context, call string) {
		deadline, bounded := ctx.Deadline()
		calls[call] = bounded && time.Until(deadline) <= apiTimeout
	}
	e := newEngine(t)
	withCalls := interceptor.NewClient(e.cluster.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note(ctx, "create")
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			note(ctx, "delete")
			return c.Delete(ctx, o, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			note(ctx, "get")
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			note(ctx, "list")
			return c.List(ctx, list, opts...)
		},
	})
	options := e.Options
	options.Client, options.Reader = withCalls, withCalls
	b := New(options)
	job := &batchv1.Job{}
	job.Namespace, job.Name = "shop", "x"
	e.must(b.Client.Create(t.Context(), job))
	e.must(b.Reader.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	e.must(b.Reader.List(t.Context(), &corev1.PodList{}))
	e.must(b.Client.Delete(t.Context(), job))
	for _, call := range []string{"create", "get", "list", "delete"} {
		if !calls[call] {
			t.Errorf("%s has no deadline of at most %s", call, apiTimeout)
		}
	}
}
