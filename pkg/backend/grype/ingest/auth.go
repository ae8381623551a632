package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Extra attributes that the API server adds to the user of a token bound to a pod
// (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens).
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
)

const serviceAccountPrefix = "system:serviceaccount:"

// refusal is an error with the HTTP status that answers it. Its text goes to the caller.
type refusal struct {
	status int
	text   string
	// retryAfter asks the caller to retry after this time; 0 means that a retry is pointless.
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// refuseTemporarily returns a refusal of a request that may succeed later.
func refuseTemporarily(status int, after time.Duration, text string) error {
	return &refusal{status: status, text: text, retryAfter: after}
}

// Bounds of the token caches, which are keyed by hash. A token or pod that is deleted stays valid for at most validTTL. Its Job is looked
// up at every request.
const (
	maxTokens     = 4096
	validTTL      = time.Minute
	refusedTTL    = 10 * time.Second
	maxTokenBytes = 16 << 10
	// maxReviews is how many token reviews run at a time, and maxClientReviews how many of them for one client address. Further requests
	// wait, at most reviewTime.
	maxReviews       = 32
	maxClientReviews = 4
	reviewTime       = 15 * time.Second
)

// versionRetry is when a Job of another version may ask again, another replica perhaps.
const versionRetry = 5 * time.Second

// errReviewTimeout refuses a caller whose token could not be reviewed within reviewTime.
var errReviewTimeout = refuseTemporarily(http.StatusServiceUnavailable, spoolRetry, "too many tokens to review at once")

// authenticator finds the Job that a request comes from. It keeps only hashes of tokens.
type authenticator struct {
	client client.Client // creates TokenReviews
	reader client.Reader // reads pods without a cache, since a pod may be seconds old
	jobs   *store.Store
	worker string // the image of current Jobs

	validTokens   *cache.LRUExpireCache // identity by token hash
	refusedTokens *cache.LRUExpireCache // *refusal by token hash; separate, so that invented tokens do not evict those of workers
	reviewSlots   *clientSlots
}

func newAuthenticator(i *Ingest) authenticator {
	return authenticator{
		client: i.Client, reader: i.Reader, jobs: i.Store, worker: i.WorkerImage, reviewSlots: newClientSlots(maxReviews, maxClientReviews),
		validTokens: cache.NewLRUExpireCacheWithClock(maxTokens, i.Clock), refusedTokens: cache.NewLRUExpireCacheWithClock(maxTokens, i.Clock),
	}
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

// identify returns the identity of the request's token. It caches the API server's answers.
func (a *authenticator) identify(r *http.Request) (identity, error) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" || len(token) > maxTokenBytes {
		return identity{}, refuse(http.StatusUnauthorized, "a bearer token is needed")
	}
	hash := sha256.Sum256([]byte(token))
	if caller, found := a.validTokens.Get(hash); found {
		return caller.(identity), nil
	}
	if err, found := a.refusedTokens.Get(hash); found {
		return identity{}, err.(*refusal)
	}
	caller, err := a.reviewToken(r.Context(), clientAddress(r), token)
	var refused *refusal
	switch {
	case err == nil:
		a.validTokens.Add(hash, caller, validTTL)
	case errors.As(err, &refused) && refused.retryAfter == 0:
		a.refusedTokens.Add(hash, refused, refusedTTL)
	}
	return caller, err
}

// clientAddress returns the address that a request comes from, without the port. That is the IP of a pod, or of a node that hides its
// pods' IPs.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// reviewToken has the API server review a client's token and reads the pod that the token is bound to. It waits at most reviewTime.
func (a *authenticator) reviewToken(ctx context.Context, client, token string) (identity, error) {
	bounded, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	caller, err := a.identifyPod(bounded, client, token)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return identity{}, errReviewTimeout
	}
	return caller, err
}

func (a *authenticator) identifyPod(ctx context.Context, client, token string) (identity, error) {
	release, err := a.reviewSlots.acquire(ctx, client)
	if err != nil {
		return identity{}, err
	}
	defer release()
	user, err := a.review(ctx, token)
	if err != nil {
		return identity{}, err
	}
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

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// review returns the user that the API server authenticates for a token.
func (a *authenticator) review(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{workerapi.Audience}},
	}
	if err := a.client.Create(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reviewing a token: %w", err)
	}
	// An API server without audience support returns no audiences: such a token may be meant for any service.
	if !review.Status.Authenticated || len(review.Status.Audiences) != 1 || review.Status.Audiences[0] != workerapi.Audience {
		return authenticationv1.UserInfo{}, refuse(http.StatusUnauthorized, "the token is not valid here")
	}
	return review.Status.User, nil
}

// pod returns the existing pod that a token is bound to.
func (a *authenticator) pod(ctx context.Context, user authenticationv1.UserInfo) (*corev1.Pod, error) {
	account, isAccount := strings.CutPrefix(user.Username, serviceAccountPrefix)
	namespace, _, _ := strings.Cut(account, ":")
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
