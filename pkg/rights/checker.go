package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/metrics"
)

const (
	// checkInterval is how often namespaces are checked while a permission is missing there, or after a request was forbidden.
	checkInterval = 10 * time.Second
	// allInterval is how often all namespaces are checked, since a permission may be revoked at any time.
	allInterval = 5 * time.Minute
)

// missing counts missing permissions. Its label is a watched namespace, which an administrator has listed, or "" for all.
var missing = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "scanner_operator_missing_rights",
	Help: "Rights that the operator needs in a namespace that it watches (empty: in all of them) and does not have.",
}, []string{"scanner_namespace"})

// Checker finds out which permissions the operator lacks in the namespaces that it watches. For a nil Checker, none is missing.
type Checker struct {
	// Client must not read from a cache.
	Client client.Client
	// Cache is the manager's cache.
	Cache client.Reader
	// Watched lists the namespaces that are watched; empty means all. Home is the operator's own namespace.
	Watched []string
	Home    string
	// Account is the operator's own ServiceAccount, "namespace:name".
	Account string
	Log     logr.Logger
	// Metrics registers the metric of missing permissions. Loops counts the checks.
	Metrics prometheus.Registerer
	Loops   *metrics.Loops
	// Changed is called when the missing permissions of a namespace, or Readable, have changed. advice explains how to grant the missing
	// permissions. It is empty if none is missing, or if they are the same as before.
	Changed func(ctx context.Context, namespace, advice string)

	mutex sync.Mutex
	// states holds the state of each watched namespace, or of "" for all, and of Home.
	states map[string]*state
}

// state is the result of the last check of a namespace. There is none before the first check.
type state struct {
	lacking []Right
	// filled means that the cache has all objects of the namespace, as far as the operator may read them. begun means that the cache has
	// some of each kind. An informer that may list after a refusal adds one object after another. filled therefore needs begun in the check
	// before, too.
	begun, filled bool
	// suspect requests another check.
	suspect bool
}

// Namespaces returns the namespaces to list for everything that is watched; "" stands for all.
func (c *Checker) Namespaces() []string {
	if c == nil || len(c.Watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return c.Watched
}

// scope returns the key in states for a namespace.
func (c *Checker) scope(namespace string) string {
	if len(c.Watched) == 0 {
		return metav1.NamespaceAll
	}
	return namespace
}

// Readable reports whether the cache has all objects of a namespace. Otherwise, an object that is not in the cache may still exist.
func (c *Checker) Readable(namespace string) bool {
	if c == nil || namespace == "" && len(c.Watched) > 0 { // objects without a namespace
		return true
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.states[c.scope(namespace)]
	return known != nil && known.filled
}

// Missing describes the permissions whose lack affects the Scanners of a namespace, and how to grant them. Empty if none is missing.
func (c *Checker) Missing(namespace string) string {
	if c == nil {
		return ""
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, scope := range []string{c.scope(namespace), c.Home} {
		if known := c.states[scope]; known != nil && len(known.lacking) > 0 {
			return lacking{scope, known.lacking}.advice(c.Account, c.Home)
		}
	}
	return ""
}

// Suspect has a namespace checked soon, since a request was forbidden there.
func (c *Checker) Suspect(namespace string) {
	if c == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if known := c.states[c.scope(namespace)]; known != nil {
		known.suspect = true
	}
}

// Run checks all namespaces periodically until the context ends.
func (c *Checker) Run(ctx context.Context) error {
	if err := c.Metrics.Register(missing); err != nil {
		return fmt.Errorf("metrics of rights: %w", err)
	}
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	last := time.Time{}
	for {
		now := time.Now()
		all := now.Sub(last) >= allInterval
		if all {
			last = now
		}
		if err := c.Loops.Run("rights", func() error { return c.look(ctx, all) }); err != nil && ctx.Err() == nil {
			c.Log.Error(err, "Finding out what may be done")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look checks all namespaces, or only those where a permission is, or may be, missing.
func (c *Checker) look(ctx context.Context, all bool) error {
	var failed []error
	scopes := c.Namespaces()
	if len(c.Watched) > 0 && !slices.Contains(c.Watched, c.Home) {
		scopes = append(slices.Clone(scopes), c.Home)
	}
	for _, scope := range scopes {
		if ctx.Err() == nil && (all || c.pending(scope)) {
			if err := c.lookAt(ctx, scope); err != nil {
				failed = append(failed, fmt.Errorf("namespace %q: %w", scope, err))
			}
		}
	}
	return errors.Join(failed...)
}

func (c *Checker) pending(scope string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.states[scope]
	return known == nil || known.suspect || !known.filled || len(known.lacking) > 0
}

// lookAt checks one namespace and reports changes.
func (c *Checker) lookAt(ctx context.Context, scope string) error {
	needed := Needed
	if len(c.Watched) > 0 && !slices.Contains(c.Watched, scope) {
		needed = NeededAtHome
	}
	now, before := &state{}, c.known(scope)
	for _, right := range needed {
		allowed, err := c.may(ctx, scope, right)
		if err != nil {
			return err
		}
		if !allowed {
			now.lacking = append(now.lacking, right)
		}
	}
	var err error
	if now.begun = !slices.ContainsFunc(now.lacking, Right.fillsCache); now.begun && len(needed) == len(Needed) {
		if now.begun, err = c.cached(ctx, scope); err != nil {
			return err
		}
	}
	now.filled = now.begun && (before == nil || before.begun) // at its start, the manager waits for the first lists
	c.mutex.Lock()
	if c.states == nil {
		c.states = map[string]*state{}
	}
	c.states[scope] = now
	c.mutex.Unlock()
	c.tell(ctx, scope, before, now)
	return nil
}

// known returns the state of a namespace; nil before the first check.
func (c *Checker) known(scope string) *state {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.states[scope]
}

// tell logs changes of a namespace's state and calls Changed. A first check that finds nothing missing is not reported.
func (c *Checker) tell(ctx context.Context, scope string, before, now *state) {
	missing.WithLabelValues(scope).Set(float64(len(now.lacking)))
	if before == nil {
		before = &state{filled: now.filled}
	}
	advice := ""
	switch changed := !slices.Equal(before.lacking, now.lacking); {
	case changed && len(now.lacking) > 0:
		advice = lacking{scope, now.lacking}.advice(c.Account, c.Home)
		c.Log.Error(nil, "Rights are missing", "namespace", scope, "advice", advice)
	case changed:
		c.Log.Info("All rights are there", "namespace", scope)
	case before.filled == now.filled:
		return
	}
	c.Changed(ctx, scope, advice)
}

// may asks the API server whether the operator's own account has a permission.
func (c *Checker) may(ctx context.Context, namespace string, right Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: right.Verb, Group: right.Resource.Group, Resource: right.Resource.Resource, Subresource: right.Subresource,
		},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("reviewing the operator's own rights: %w", err)
	}
	return review.Status.Allowed, nil
}

// cached compares the cache with the API server. It returns false if the cache is empty where there are objects: its informer could not
// list at first.
func (c *Checker) cached(ctx context.Context, namespace string) (bool, error) {
	for resource, list := range watched() {
		cached := watched()[resource]
		if err := c.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return false, err
		}
		if empty(list) {
			continue
		}
		if err := c.Cache.List(ctx, cached, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
		if empty(cached) {
			return false, nil
		}
	}
	return true, nil
}
