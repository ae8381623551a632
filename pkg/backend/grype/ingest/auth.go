package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Extra attributes that the API server adds to the user of a token bound to a pod
// (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens).
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
)

// refusal is an error with the HTTP status that answers it. Its text goes to the caller.
type refusal struct {
	status int
	text   string
	// retryAfter asks the caller to retry after this time; 0 means that a retry is pointless.
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.text }

// Is lets a refusal for good be remembered with the token.
func (r *refusal) Is(target error) bool { return target == kubeauth.ErrRefused && r.retryAfter == 0 }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// refuseTemporarily returns a refusal of a request that may succeed later.
func refuseTemporarily(status int, after time.Duration, text string) error {
	return &refusal{status: status, text: text, retryAfter: after}
}

// validTTL is how long a token or pod that is deleted stays valid at most. Its Job is looked up at every request.
const validTTL = time.Minute

// versionRetry is when a Job of another version may ask again, another replica perhaps.
const versionRetry = 5 * time.Second

// authenticator finds the Job that a request comes from.
type authenticator struct {
	tokens *kubeauth.Tokens[identity]
	reader client.Reader // reads pods without a cache, since a pod may be seconds old
	jobs   *store.Store
	worker string // the image of current Jobs
}

func newAuthenticator(i *Ingest) authenticator {
	a := authenticator{reader: i.Reader, jobs: i.Store, worker: i.WorkerImage}
	a.tokens = kubeauth.NewTokens(kubeauth.Options[identity]{
		Review: kubeauth.TokensBy(i.Client), Audience: workerapi.Audience, Resolve: a.identifyPod, TTL: validTTL, Clock: i.Clock,
	})
	return a
}

// identity is the pod that a token belongs to, and the Job that controls the pod.
type identity struct{ namespace, podUID, jobUID string }

// job returns the manager's record of the Job whose pod sent the request. The pod's owner reference leads to the record. It can be forged,
// so it is accepted only for the first pod that makes a request for the Job.
func (a *authenticator) job(r *http.Request, purpose store.JobPurpose) (store.Job, error) {
	caller, err := a.identify(r)
	if err != nil {
		return store.Job{}, err
	}
	record, err := a.jobs.JobByUID(r.Context(), caller.jobUID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Job{}, refuse(http.StatusForbidden, "the pod's Job is not one that the operator made, or has ended")
	}
	if err != nil {
		return store.Job{}, err
	}
	if record.Namespace != caller.namespace || record.Purpose != purpose {
		return store.Job{}, refuse(http.StatusForbidden, "this Job may not do that")
	}
	if record.Worker != a.worker {
		// While an upgrade replaces one replica after the other, the leader of the other version may still need the Job, or the one of this version ends
		// it within seconds. Neither is a failure of its image.
		return store.Job{}, refuseTemporarily(http.StatusServiceUnavailable, versionRetry, "the Job was made by another version of the operator")
	}
	record, err = a.jobs.ClaimJob(r.Context(), caller.jobUID, caller.podUID)
	switch {
	case errors.Is(err, store.ErrForeignPod):
		return store.Job{}, refuse(http.StatusForbidden, "another pod speaks for this Job")
	case errors.Is(err, store.ErrNotFound):
		return store.Job{}, refuse(http.StatusForbidden, "the Job has ended")
	}
	return record, err
}

// identify returns the identity of the request's token.
func (a *authenticator) identify(r *http.Request) (identity, error) {
	token, found := kubeauth.BearerToken(r)
	if !found {
		return identity{}, refuse(http.StatusUnauthorized, "a bearer token is needed")
	}
	caller, err := a.tokens.Identify(r.Context(), limits.AddressOf(r), token)
	if errors.Is(err, kubeauth.ErrUnauthenticated) {
		return identity{}, refuse(http.StatusUnauthorized, "the token is not valid here")
	}
	return caller, err
}

// identifyPod returns the pod that a user's token is bound to.
func (a *authenticator) identifyPod(ctx context.Context, user authenticationv1.UserInfo) (identity, error) {
	pod, err := a.pod(ctx, user)
	if err != nil {
		return identity{}, err
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return identity{}, refuse(http.StatusForbidden, "the pod belongs to no Job")
	}
	return identity{namespace: pod.Namespace, podUID: string(pod.UID), jobUID: string(owner.UID)}, nil
}

// pod returns the existing pod that a token is bound to.
func (a *authenticator) pod(ctx context.Context, user authenticationv1.UserInfo) (*corev1.Pod, error) {
	namespace, isAccount := kubeauth.ServiceAccountNamespace(user.Username)
	name, uid := user.Extra[extraPodName], user.Extra[extraPodUID]
	if !isAccount || len(name) != 1 || len(uid) != 1 {
		return nil, refuse(http.StatusForbidden, "the token is bound to no pod")
	}
	var pod corev1.Pod
	err := a.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name[0]}, &pod)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the pod of a token: %w", err)
	}
	if err != nil || string(pod.UID) != uid[0] {
		return nil, refuse(http.StatusForbidden, "the token's pod does not exist any more")
	}
	return &pod, nil
}
