package grype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// apiTimeout bounds a call of the API server. Each admission webhook of a namespace may take up to 30 s
	// (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#timeouts). A tenant who controls webhooks
	// must not block the operator for that long.
	apiTimeout = 15 * time.Second
	// namespaceTimeout is how long a run of the Job loop waits for slow namespaces.
	namespaceTimeout = 5 * time.Second
)

// boundedClient and boundedReader limit each call to apiTimeout.
type (
	boundedClient struct{ client.Client }
	boundedReader struct{ client.Reader }
)

func (c boundedClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return c.Client.Create(ctx, o, opts...)
}

func (c boundedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return c.Client.Delete(ctx, o, opts...)
}

func (r boundedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return r.Reader.Get(ctx, key, o, opts...)
}

func (r boundedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return r.Reader.List(ctx, list, opts...)
}

// namespaceRunner processes Jobs: sequentially within a namespace, concurrently across namespaces. A namespace with a hanging admission
// webhook delays only itself.
type namespaceRunner struct {
	// busy has the namespaces whose Jobs are being processed.
	busy    sync.Map
	running sync.WaitGroup
	// after is time.After, replaceable in tests.
	after func(time.Duration) <-chan time.Time
	log   logr.Logger
}

// run calls do for each Job and waits at most namespaceTimeout. A namespace that takes longer continues in the background, and later runs skip
// it until it is done. Its errors are logged and not returned: a later run processes its Jobs again, with their state by then. Nothing is
// logged after ctx has ended.
func (l *namespaceRunner) run(ctx context.Context, jobs []store.Job, do func(store.Job) error) error {
	byNamespace := map[string][]store.Job{}
	for _, job := range jobs {
		byNamespace[job.Namespace] = append(byNamespace[job.Namespace], job)
	}
	results, slow, pending := make(chan namespaceResult, len(byNamespace)), []string{}, 0
	for namespace, jobs := range byNamespace {
		slow = append(slow, namespace)
		if _, busy := l.busy.LoadOrStore(namespace, true); busy {
			continue
		}
		pending++
		l.running.Go(func() {
			var errs []error
			for _, job := range jobs {
				errs = append(errs, do(job))
			}
			l.busy.Delete(namespace)
			results <- namespaceResult{namespace, errors.Join(errs...)}
		})
	}
	var errs []error
	for timeout, over := l.after(namespaceTimeout), false; pending > 0 && !over; {
		select {
		case r := <-results:
			pending--
			errs = append(errs, r.err)
			slow = slices.DeleteFunc(slow, func(namespace string) bool { return namespace == r.namespace })
		case <-timeout:
			over = true
		}
	}
	if pending > 0 {
		l.running.Go(func() { l.logErrors(ctx, results, pending) })
	}
	if len(slow) > 0 {
		slices.Sort(slow)
		errs = append(errs, fmt.Errorf("the API server takes long over Jobs in the namespaces %q: an admission webhook may hang", slow))
	}
	return errors.Join(errs...)
}

// namespaceResult holds the errors of all Jobs of a namespace in one run.
type namespaceResult struct {
	namespace string
	err       error
}

// logErrors waits for the given number of results and logs their errors, unless ctx has ended.
func (l *namespaceRunner) logErrors(ctx context.Context, results <-chan namespaceResult, pending int) {
	for range pending {
		if r := <-results; r.err != nil && ctx.Err() == nil {
			l.log.Error(r.err, "Looking after jobs of a slow namespace", "namespace", r.namespace)
		}
	}
}
