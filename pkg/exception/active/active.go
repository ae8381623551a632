// Package active reads exceptions from the Kubernetes API: VulnerabilityExceptions and ClusterVulnerabilityExceptions. It adds the statements about
// images that the operator has stored.
//
// It writes nothing. Of namespaces it reads only the labels, and only if an exception selects namespaces by label.
package active

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// Source returns the exceptions of a namespace. It is safe for concurrent use.
type Source struct {
	// Reader reads exceptions and the metadata of namespaces. With a cached reader, no method sends a request.
	Reader client.Reader
	Clock  clock.PassiveClock
	// Statements are those of documents that are attached to images; nil for none.
	Statements Statements
}

// Statements returns the statements about images that run in some namespaces (nil: all). The Namespaces of each are set.
type Statements func(ctx context.Context, namespaces []string) ([]exception.Exception, error)

// InForce returns the exceptions that are in force in a namespace now: its own, and cluster-wide ones that select it. next is when the
// first of them expires; zero if none does. A namespace that does not exist has no labels.
func (s Source) InForce(ctx context.Context, namespace string) (set exception.Set, next time.Time, err error) {
	all, err := s.read(ctx, namespace)
	if err != nil {
		return exception.Set{}, time.Time{}, err
	}
	if err := all.addStatements(ctx, s.Statements, []string{namespace}); err != nil {
		return exception.Set{}, time.Time{}, err
	}
	set = exception.NewSet(all.applyingTo(namespace), s.Clock.Now())
	return set, firstExpiry(set), nil
}

// InForceIn is InForce for several namespaces. Each exception of the set applies only to images in the namespaces that it is for.
func (s Source) InForceIn(ctx context.Context, namespaces []string) (set exception.Set, next time.Time, err error) {
	if len(namespaces) == 1 {
		return s.InForce(ctx, namespaces[0])
	}
	all, err := s.read(ctx, metav1.NamespaceAll)
	if err != nil {
		return exception.Set{}, time.Time{}, err
	}
	if len(namespaces) > 0 { // no namespaces would be all
		if err := all.addStatements(ctx, s.Statements, namespaces); err != nil {
			return exception.Set{}, time.Time{}, err
		}
	}
	about := all.statements
	for _, namespace := range namespaces {
		about = append(about, all.own[namespace]...)
	}
	for _, c := range all.clusterWide {
		if e, applies := c.in(namespaces, all.labels); applies {
			about = append(about, e)
		}
	}
	set = exception.NewSet(about, s.Clock.Now())
	return set, firstExpiry(set), nil
}

// firstExpiry returns when the first exception of a set expires; zero if none does.
func firstExpiry(set exception.Set) (next time.Time) {
	for _, e := range set.All() {
		if !e.Expires.IsZero() && (next.IsZero() || e.Expires.Before(next)) {
			next = e.Expires
		}
	}
	return next
}

// in returns the exception with those of the given namespaces that it selects, and whether there is any.
func (c clusterWide) in(namespaces []string, of map[string]labels.Set) (e exception.Exception, applies bool) {
	e = c.Exception
	if c.selector.Empty() {
		return e, len(namespaces) > 0
	}
	e.Namespaces = map[string]bool{}
	for _, namespace := range namespaces {
		if c.selector.Matches(of[namespace]) {
			e.Namespaces[namespace] = true
		}
	}
	return e, len(e.Namespaces) > 0
}

// AllNamespaces reads the exceptions of all namespaces at once. The returned function gives the exceptions of one namespace that are in force
// at the time of the call of Everywhere. It reads nothing and must not be called concurrently.
func (s Source) AllNamespaces(ctx context.Context) (func(namespace string) exception.Set, error) {
	all, err := s.read(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	if err := all.addStatements(ctx, s.Statements, nil); err != nil {
		return nil, err
	}
	now, known := s.Clock.Now(), map[string]exception.Set{}
	return func(namespace string) exception.Set {
		set, found := known[namespace]
		if !found {
			set = exception.NewSet(all.applyingTo(namespace), now)
			known[namespace] = set
		}
		return set
	}, nil
}

// Selects returns a function that reports whether a cluster-wide exception selects a namespace, by the namespaces' current labels. An
// exception with an invalid selector selects none.
func (s Source) Selects(ctx context.Context, e *v1alpha1.ClusterVulnerabilityException) (func(namespace string) bool, error) {
	selector, err := Selector(e)
	if err != nil {
		return func(string) bool { return false }, nil //nolint:nilerr // it is said in its status
	}
	known := map[string]labels.Set{}
	if !selector.Empty() {
		err = s.readLabels(ctx, known)
	}
	return func(namespace string) bool { return selector.Matches(known[namespace]) }, err
}

// exceptionSet holds the result of one read.
type exceptionSet struct {
	own         map[string][]exception.Exception // by namespace
	clusterWide []clusterWide
	statements  []exception.Exception
	labels      map[string]labels.Set // of the namespaces, if any exception selects by labels
}

type clusterWide struct {
	exception.Exception
	selector labels.Selector
}

// applyingTo returns the exceptions that apply to a namespace, including expired ones.
func (e *exceptionSet) applyingTo(namespace string) []exception.Exception {
	about := append([]exception.Exception(nil), e.own[namespace]...)
	for _, c := range e.clusterWide {
		if c.selector.Matches(e.labels[namespace]) {
			about = append(about, c.Exception)
		}
	}
	for i := range e.statements {
		if e.statements[i].Namespaces[namespace] {
			about = append(about, e.statements[i])
		}
	}
	return about
}

// addStatements adds the statements about images in some namespaces, nil for all.
func (e *exceptionSet) addStatements(ctx context.Context, read Statements, namespaces []string) (err error) {
	if read == nil {
		return nil
	}
	e.statements, err = read(ctx, namespaces)
	return err
}

// read reads what applies to a namespace, or to all. The objects belong to the cache and must not be changed.
func (s Source) read(ctx context.Context, namespace string) (*exceptionSet, error) {
	all := &exceptionSet{own: map[string][]exception.Exception{}, labels: map[string]labels.Set{}}
	var own v1alpha1.VulnerabilityExceptionList
	if err := s.Reader.List(ctx, &own, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	refusal := Refusals(&own, s.Clock.Now())
	for i := range own.Items {
		e := &own.Items[i]
		if refusal(e.Namespace, e.Name) != "" {
			continue // the status of the exception reports it
		}
		all.own[e.Namespace] = append(all.own[e.Namespace], FromResource(&e.ObjectMeta, &e.Spec))
	}
	var wide v1alpha1.ClusterVulnerabilityExceptionList
	if err := s.Reader.List(ctx, &wide, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	selective := false
	for i := range wide.Items {
		e := &wide.Items[i]
		selector, err := Selector(e)
		if err != nil {
			continue // the status of the exception reports the error
		}
		all.clusterWide = append(all.clusterWide, clusterWide{FromResource(&e.ObjectMeta, &e.Spec.ExceptionSpec), selector})
		selective = selective || !selector.Empty()
	}
	switch {
	case !selective:
		return all, nil
	case namespace != metav1.NamespaceAll:
		return all, s.readLabelsOf(ctx, namespace, all.labels)
	}
	return all, s.readLabels(ctx, all.labels)
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

func (s Source) readLabelsOf(ctx context.Context, name string, into map[string]labels.Set) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind)
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	into[name] = namespace.Labels
	return nil
}

func (s Source) readLabels(ctx context.Context, into map[string]labels.Set) error {
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(namespaceKind.GroupVersion().WithKind("NamespaceList"))
	if err := s.Reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range namespaces.Items {
		into[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	return nil
}

// Selector returns the selector for the namespaces to which a cluster-wide exception applies. Without a selector it applies to all, with an
// invalid one (an error) to none.
func Selector(e *v1alpha1.ClusterVulnerabilityException) (labels.Selector, error) {
	if e.Spec.NamespaceSelector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(e.Spec.NamespaceSelector)
}

// FromResource converts an exception of the API into one that can be compared with findings. Both share the spec's lists.
func FromResource(object *metav1.ObjectMeta, spec *v1alpha1.ExceptionSpec) exception.Exception {
	e := exception.Exception{
		UID: string(object.UID), Namespace: object.Namespace, Name: object.Name,
		Status: string(spec.Status), Justification: string(spec.Justification), Reason: spec.Reason, Action: spec.Action,
		Vulnerabilities: spec.Vulnerabilities, Images: spec.Images, Created: object.CreationTimestamp.Time,
	}
	for _, p := range spec.Packages {
		e.Packages = append(e.Packages, exception.Package{Name: p.Name, Version: p.Version, Type: p.Type})
	}
	if spec.ExpirationTime != nil {
		e.Expires = spec.ExpirationTime.Time
		if e.Expires.IsZero() {
			e.Expires = time.Unix(0, 0) // Expires must not be zero, which means never: the year 1 has passed too
		}
	}
	return e
}
