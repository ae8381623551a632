package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
)

// Kinds of exceptions.
const (
	kindException        = exception.KindNamespaced
	kindClusterException = exception.KindClusterWide
)

// exceptionPosition is a position in a list of exceptions: the last exception before it. The zero value is the beginning.
type exceptionPosition struct {
	// Ends is in seconds since 1970; never for an exception that never ends.
	Ends      int64  `json:"ends"`
	Namespace string `json:"namespace"`
	// Name is empty at the beginning of the list.
	Name string `json:"name"`
}

const never = 1 << 62

func positionOf(e *restv1.ExceptionDetails) exceptionPosition {
	position := exceptionPosition{Ends: never, Namespace: e.Namespace, Name: e.Name}
	if !e.ExpirationTime.IsZero() {
		position.Ends = e.ExpirationTime.Unix()
	}
	return position
}

func (p exceptionPosition) compare(other exceptionPosition) int {
	return cmp.Or(cmp.Compare(p.Ends, other.Ends), cmp.Compare(p.Namespace, other.Namespace), cmp.Compare(p.Name, other.Name))
}

// ListExceptions implements restv1.StrictServerInterface.
func (a operations) ListExceptions(ctx context.Context, r restv1.ListExceptionsRequestObject) (restv1.ListExceptionsResponseObject, error) {
	var after exceptionPosition
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	all, err := a.visibleExceptions(ctx, ptr.Deref(r.Params.Namespace, ""))
	if err != nil {
		return nil, err
	}
	clusterWide, err := a.authorizer.isAllowed(ctx, callerOf(ctx).user, verbList, resourceClusterExceptions, "", "")
	if err != nil {
		return nil, err
	}
	if clusterWide {
		selecting, err := a.clusterExceptions(ctx, r.Params.Namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, selecting...)
	}
	all = slices.DeleteFunc(all, func(e restv1.ExceptionDetails) bool { return ptr.Deref(r.Params.State, e.State) != e.State })
	slices.SortFunc(all, func(x, y restv1.ExceptionDetails) int { return positionOf(&x).compare(positionOf(&y)) })
	answer := restv1.ListExceptions200JSONResponse{Items: []restv1.ExceptionDetails{}, Total: len(all), ClusterWide: clusterWide}
	for i := range all {
		if after.Name != "" && positionOf(&all[i]).compare(after) <= 0 {
			continue
		}
		if n := len(answer.Items); n == limitOf(r.Params.Limit) {
			answer.Continue, err = encodeContinue(ctx, positionOf(&answer.Items[n-1]))
			return answer, err
		}
		answer.Items = append(answer.Items, all[i])
	}
	return answer, nil
}

// visibleExceptions returns the VulnerabilityExceptions of a namespace, or of all namespaces in which the caller may list them.
func (a operations) visibleExceptions(ctx context.Context, namespace string) (visible []restv1.ExceptionDetails, err error) {
	var own v1alpha1.VulnerabilityExceptionList
	if err := a.Reader.List(ctx, &own, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing VulnerabilityExceptions: %w", err)
	}
	covering, err := a.clusterCoverage(ctx)
	if err != nil {
		return nil, err
	}
	namespaces := covering.namespaces()
	for i := range own.Items {
		namespaces = append(namespaces, own.Items[i].Namespace)
	}
	_, seen, err := a.listWithVisibility(ctx, resourceExceptions, namespace, namespaces...)
	if err != nil {
		return nil, err
	}
	refusal := active.Refusals(&own, a.Clock.Now())
	for i := range own.Items {
		if e := &own.Items[i]; seen.includes(e.Namespace) {
			details := a.exceptionDetails(kindException, &e.ObjectMeta, &e.Spec, &e.Status)
			if reason := refusal(e.Namespace, e.Name); reason != "" {
				details.State, details.Message, details.Findings = restv1.ExceptionTooMany, reason, nil
			}
			visible = append(visible, details)
		}
	}
	return visible, nil
}

// clusterExceptions returns all ClusterVulnerabilityExceptions, or those that select a namespace. One whose selector cannot be read is among them.
func (a operations) clusterExceptions(ctx context.Context, namespace *string) (selecting []restv1.ExceptionDetails, err error) {
	var all v1alpha1.ClusterVulnerabilityExceptionList
	if err := a.Reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ClusterVulnerabilityExceptions: %w", err)
	}
	for i := range all.Items {
		e := &all.Items[i]
		details := a.exceptionDetails(kindClusterException, &e.ObjectMeta, &e.Spec.ExceptionSpec, &e.Status)
		if _, err := active.Selector(e); err != nil {
			details.State, details.Message = restv1.ExceptionInvalidSelector, err.Error()
		} else if namespace != nil {
			selects, err := a.exceptions().Selects(ctx, e)
			if err != nil {
				return nil, fmt.Errorf("namespaces of ClusterVulnerabilityException %s: %w", e.Name, err)
			}
			if !selects(*namespace) {
				continue
			}
		}
		selecting = append(selecting, details)
	}
	return selecting, nil
}

func (a operations) exceptionDetails(kind string, object *metav1.ObjectMeta, spec *v1alpha1.ExceptionSpec, status *v1alpha1.ExceptionStatus) restv1.ExceptionDetails {
	e := active.FromResource(object, spec)
	details := restv1.ExceptionDetails{
		Kind: kind, Namespace: e.Namespace, Name: e.Name, State: stateOfException(e.Expires, a.Clock.Now()), Status: e.Status, Justification: e.Justification,
		Reason: e.Reason, Action: e.Action, Vulnerabilities: e.Vulnerabilities, Images: e.Images, CreationTime: e.Created.UTC(), ExpirationTime: utcOf(e.Expires),
	}
	for _, p := range e.Packages {
		details.Packages = append(details.Packages, restv1.PackageSelector{Name: p.FullName(), Version: p.Version, Type: p.Type})
	}
	if status.Findings != nil && details.State != restv1.ExceptionExpired {
		details.Findings = ptr.To(int(*status.Findings))
	}
	return details
}

// stateOfException returns the state of an exception with a valid selector. expires is zero if it never ends.
func stateOfException(expires, now time.Time) restv1.ExceptionState {
	switch {
	case expires.IsZero():
	case !now.Before(expires):
		return restv1.ExceptionExpired
	case expires.Before(now.Add(endingSoon)):
		return restv1.ExceptionEndingSoon
	}
	return restv1.ExceptionInForce
}
