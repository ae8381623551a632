package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/metrics"
)

const (
	// checkInterval is how often namespaces are checked while a permission is missing there, or after a request was forbidden.
	checkInterval = 10 * time.Second
	// fullCheckInterval is how often all namespaces are checked without a reason. A permission may be revoked at any time; a refused request
	// mostly shows it earlier.
	fullCheckInterval = time.Hour
)

// missingGauge counts missing permissions. Its label is a watched namespace, which an administrator has listed, or "" for all.
var missingGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "scanner_operator_missing_permissions",
	Help: "Permissions that the operator lacks in a namespace that it watches (empty: in all of them).",
}, []string{"scanner_namespace"})

// Checker finds out which permissions the operator lacks in the namespaces that it watches. For a nil Checker, none is missing.
type Checker struct {
	// Client must not read from a cache.
	Client client.Client
	// Cache is the manager's cache.
	Cache client.Reader
	// Watched lists the namespaces that are watched; empty means all. OperatorNamespace is the operator's own namespace.
	Watched           []string
	OperatorNamespace string
	// ByOLM means that OLM installed this operator. It gives the permissions for OperatorNamespace in all namespaces.
	ByOLM bool
	// Account is the operator's own ServiceAccount, "namespace:name".
	Account string
	Log     logr.Logger
	// Metrics registers the metric of missing permissions. Loops counts the checks.
	Metrics prometheus.Registerer
	Loops   *metrics.Loops
	// OnChange is called when the missing permissions of a namespace, or IsCacheComplete, have changed. advice explains how to grant the missing
	// permissions. It is empty if none is missing, or if they are the same as before.
	OnChange func(ctx context.Context, namespace, advice string)
	// OnExcess is called when the operator may do in all namespaces what no installer permits. advice names the ClusterRoleBinding.
	OnExcess func(advice string)

	// excess is the advice of the last call of OnExcess.
	excess string

	mutex sync.Mutex
	// states holds the state of each watched namespace, or of "" for all, and of OperatorNamespace.
	states map[string]*state
}

// state is the result of the last check of a namespace. There is none before the first check.
type state struct {
	missing []Permission
	// cacheComplete means that the cache has all objects of the namespace, as far as the operator may read them. cacheStarted means that the cache
	// has some of each kind. An informer that may list after a refusal adds one object after another. cacheComplete therefore needs cacheStarted
	// in the check before, too.
	cacheStarted, cacheComplete bool
	// requests is the number of requests for another check since this one began.
	requests int
}

// Namespaces returns the namespaces to list for everything that is watched; "" stands for all.
func (c *Checker) Namespaces() []string {
	if c == nil || len(c.Watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return c.Watched
}

// stateKey returns the key in states for a namespace.
func (c *Checker) stateKey(namespace string) string {
	if len(c.Watched) == 0 {
		return metav1.NamespaceAll
	}
	return namespace
}

// IsCacheComplete reports whether the cache has all objects of a namespace. Otherwise, an object that is not in the cache may still exist.
func (c *Checker) IsCacheComplete(namespace string) bool {
	if c == nil || namespace == "" && len(c.Watched) > 0 { // objects without a namespace
		return true
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.states[c.stateKey(namespace)]
	return known != nil && known.cacheComplete
}

// Missing describes the permissions whose lack affects the Scanners of a namespace, and how to grant them. Empty if none is missing.
func (c *Checker) Missing(namespace string) string {
	if c == nil {
		return ""
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, scope := range []string{c.stateKey(namespace), c.OperatorNamespace} {
		if known := c.states[scope]; known != nil && len(known.missing) > 0 {
			return c.advice(scope, known.missing)
		}
	}
	return ""
}

// RequestCheck has a namespace checked soon, since a request was forbidden there or a Scanner needs other permissions. Empty stands for all
// namespaces.
func (c *Checker) RequestCheck(namespace string) {
	if c == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for scope, known := range c.states {
		if namespace == "" || scope == c.stateKey(namespace) {
			known.requests++
		}
	}
}

// Run checks all namespaces periodically until the context ends.
func (c *Checker) Run(ctx context.Context) error {
	if err := c.Metrics.Register(missingGauge); err != nil {
		return fmt.Errorf("metrics of permissions: %w", err)
	}
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	last := time.Time{}
	for {
		now := time.Now()
		all := now.Sub(last) >= fullCheckInterval
		if all {
			last = now
		}
		if err := c.Loops.Run("permissions", func() error { return c.check(ctx, all) }); err != nil && ctx.Err() == nil {
			c.Log.Error(err, "Finding out what may be done")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// check checks all namespaces, or only those where a permission is, or may be, missing.
func (c *Checker) check(ctx context.Context, all bool) error {
	var failed []error
	if all {
		failed = append(failed, c.checkExcess(ctx))
	}
	scopes := c.Namespaces()
	if len(c.Watched) > 0 && !slices.Contains(c.Watched, c.OperatorNamespace) {
		scopes = append(slices.Clone(scopes), c.OperatorNamespace)
	}
	for _, scope := range scopes {
		if ctx.Err() == nil && (all || c.needsCheck(scope)) {
			if err := c.checkNamespace(ctx, scope); err != nil {
				failed = append(failed, fmt.Errorf("namespace %q: %w", scope, err))
			}
		}
	}
	return errors.Join(failed...)
}

func (c *Checker) needsCheck(scope string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.states[scope]
	return known == nil || known.requests > 0 || !known.cacheComplete || len(known.missing) > 0
}

// checkNamespace checks one namespace and reports changes. Only one goroutine calls it.
func (c *Checker) checkNamespace(ctx context.Context, scope string) error {
	needed := Required
	if len(c.Watched) > 0 && !slices.Contains(c.Watched, scope) {
		needed = RequiredInOperatorNamespace
	}
	c.mutex.Lock()
	before, served := c.states[scope], 0
	if before != nil {
		served = before.requests
	}
	c.mutex.Unlock()
	now := &state{}
	for _, permission := range needed {
		review, err := c.review(ctx, scope, permission)
		if err != nil {
			return err
		}
		if !review.Allowed {
			now.missing = append(now.missing, permission)
		}
	}
	now.cacheStarted = !slices.ContainsFunc(now.missing, Permission.isForCache)
	if now.cacheStarted && len(needed) == len(Required) {
		var err error
		if now.cacheStarted, err = c.isCacheFilled(ctx, scope); err != nil {
			return err
		}
	}
	c.mutex.Lock()
	now.cacheComplete = now.cacheStarted && (before == nil || before.cacheStarted) // at its start, the manager waits for the first lists
	if c.states == nil {
		c.states = map[string]*state{}
	}
	if before != nil {
		now.requests = before.requests - served
	}
	c.states[scope] = now
	c.mutex.Unlock()
	c.reportChange(ctx, scope, before, now)
	return nil
}

// reportChange logs changes of a namespace's state and calls OnChange. A first check that finds nothing missing is not reported.
func (c *Checker) reportChange(ctx context.Context, scope string, before, now *state) {
	missingGauge.WithLabelValues(scope).Set(float64(len(now.missing)))
	if before == nil {
		before = &state{cacheComplete: now.cacheComplete}
	}
	advice := ""
	switch changed := !slices.Equal(before.missing, now.missing); {
	case changed && len(now.missing) > 0:
		advice = c.advice(scope, now.missing)
		c.Log.Error(nil, "Permissions are missing", "namespace", scope, "advice", advice)
	case changed:
		c.Log.Info("All permissions are there", "namespace", scope)
	case before.cacheComplete == now.cacheComplete:
		return
	}
	c.OnChange(ctx, scope, advice)
}

// checkExcess looks for permissions in all namespaces that the operator needs in some namespaces only. A ClusterRoleBinding of an earlier
// installation for the same account gives them. The operator may not read ClusterRoleBindings, but the API server's answer names the binding.
func (c *Checker) checkExcess(ctx context.Context) error {
	var excess []Permission
	if len(c.Watched) > 0 {
		excess = Required
	}
	if !c.ByOLM {
		excess = slices.Concat(excess, permissionsFor(corev1.GroupName, "secrets", "create"))
	}
	for _, permission := range excess {
		review, err := c.review(ctx, metav1.NamespaceAll, permission)
		if err != nil {
			return err
		}
		if !review.Allowed {
			continue
		}
		advice := fmt.Sprintf("the operator may %s in all namespaces, and needs that in some only: delete the ClusterRoleBinding that an earlier installation has left (%s)",
			describe([]Permission{permission}), cmp.Or(review.Reason, "the API server does not name it"))
		if advice != c.excess {
			c.excess = advice
			c.Log.Error(nil, "There are permissions of an earlier installation", "advice", advice)
			c.OnExcess(advice)
		}
		return nil
	}
	c.excess = ""
	return nil
}

// review asks the API server whether the operator's own account has a permission.
func (c *Checker) review(ctx context.Context, namespace string, permission Permission) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: permission.Verb, Group: permission.Resource.Group, Resource: permission.Resource.Resource, Subresource: permission.Subresource,
		},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return review.Status, fmt.Errorf("reviewing the operator's own permissions: %w", err)
	}
	return review.Status, nil
}

// isCacheFilled compares the cache with the API server. It returns false if the cache is empty where there are objects: its informer could not
// list at first.
func (c *Checker) isCacheFilled(ctx context.Context, namespace string) (bool, error) {
	for _, list := range cachedKinds() {
		cached := list.DeepCopyObject().(client.ObjectList)
		if err := c.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return false, err
		}
		if meta.LenList(list) == 0 {
			continue
		}
		if err := c.Cache.List(ctx, cached, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
		if meta.LenList(cached) == 0 {
			return false, nil
		}
	}
	return true, nil
}
