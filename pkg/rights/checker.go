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
	// checkInterval is how often namespaces are looked at where something is missing, or was just refused.
	checkInterval = 10 * time.Second
	// allInterval is how often all of them are: a right may be taken away at any time.
	allInterval = 5 * time.Minute
)

// missing counts rights. Its label has the namespaces that are watched, which an administrator has listed; "" stands for all.
var missing = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "scanner_operator_missing_rights",
	Help: "Rights that the operator needs in a namespace that it watches (empty: in all of them) and does not have.",
}, []string{"scanner_namespace"})

// Checker knows what the operator may not do in the namespaces that it watches. A nil one knows of nothing that is missing.
type Checker struct {
	// Client is not cached.
	Client client.Client
	// Cache has what the manager watches.
	Cache client.Reader
	// Watched namespaces; none means all. Home is the operator's own.
	Watched []string
	Home    string
	// Account is the operator's own ServiceAccount, "namespace:name".
	Account string
	Log     logr.Logger
	// Metrics is where the count goes; Loops counts the looks.
	Metrics prometheus.Registerer
	Loops   *metrics.Loops
	// Changed is told when something is missing that was not before, or the other way round. advice is empty if all is well now.
	Changed func(ctx context.Context, namespace, advice string)

	mutex sync.Mutex
	// states are of Watched, or of "" for all, and of Home.
	states map[string]*state
}

// state is what was found out about a namespace. Nothing is known before the first look.
type state struct {
	lacking []Right
	// filled says that the cache has all of the namespace, as far as reading is allowed; begun that it has some of each kind. An
	// informer that was just allowed to list adds one object after another, so that the look after that counts.
	begun, filled bool
	// suspect wants another look.
	suspect bool
}

// Namespaces to list for everything that is watched: "" stands for all.
func (c *Checker) Namespaces() []string {
	if c == nil || len(c.Watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return c.Watched
}

// scope is what a namespace's rights are kept under.
func (c *Checker) scope(namespace string) string {
	if len(c.Watched) == 0 {
		return metav1.NamespaceAll
	}
	return namespace
}

// Readable says whether the cache has all that is in a namespace. What it has not, has not gone.
func (c *Checker) Readable(namespace string) bool {
	if c == nil || namespace == "" && len(c.Watched) > 0 { // what has no namespace
		return true
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	known := c.states[c.scope(namespace)]
	return known != nil && known.filled
}

// Missing says which rights Scanners of a namespace suffer from, and how to grant them; empty if there are none.
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

// Suspect has a namespace looked at soon, since something was forbidden there.
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

// Run looks at all namespaces now and then until the context ends.
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

// look asks about all namespaces, or only about those where something is, or may be, missing.
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

// lookAt asks about one namespace and tells what has changed.
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
	now.filled = now.begun && (before == nil || before.begun) // when the manager starts, it waits for lists
	c.mutex.Lock()
	if c.states == nil {
		c.states = map[string]*state{}
	}
	c.states[scope] = now
	c.mutex.Unlock()
	c.tell(ctx, scope, before, now)
	return nil
}

// known is what was found out about a namespace; nil before the first look.
func (c *Checker) known(scope string) *state {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.states[scope]
}

// tell says what has changed, in the log and to whoever wants to know. Nothing is said of what was well from the start.
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

// may asks the API server about the operator's own account.
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

// cached compares the cache with the API server: an informer that could not list at first has nothing where there is something.
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
