package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewer is an API server that knows the token "good" of prometheus, which may get /metrics.
type reviewer struct {
	*readers
	// reviews counts the reviews of tokens and of permissions. failing makes them fail.
	tokens, permissions int
	failing             bool
	asked               authorizationv1.SubjectAccessReviewSpec
}

func newReviewer() *reviewer {
	r := &reviewer{}
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.tokens++
		if r.failing {
			return true, nil, errors.New("it does not answer")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		review.Status.Authenticated = review.Spec.Token == "good" || review.Spec.Token == "other"
		review.Status.User = authenticationv1.UserInfo{
			Username: map[string]string{"good": "prometheus", "other": "somebody"}[review.Spec.Token], UID: "7", Groups: []string{"monitoring"},
			Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}},
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.permissions++
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.asked = review.Spec
		review.Status.Allowed = review.Spec.User == "prometheus" && review.Spec.NonResourceAttributes.Path == "/metrics"
		return true, review, nil
	})
	r.readers = newReaders(client.AuthenticationV1().TokenReviews(), client.AuthorizationV1().SubjectAccessReviews())
	return r
}

// read returns the status of a request for a path.
func (r *reviewer) read(t *testing.T, path, authorization string) int {
	t.Helper()
	handler, err := r.filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

// TestReaders: only callers with a valid token and the permission for the path read metrics.
func TestReaders(t *testing.T) {
	for name, tt := range map[string]struct {
		path, authorization string
		want                int
	}{
		"the reader":         {"/metrics", "Bearer good", http.StatusOK},
		"in small letters":   {"/metrics", "bearer good", http.StatusOK},
		"no permission":      {"/metrics", "Bearer other", http.StatusForbidden},
		"another path":       {"/debug", "Bearer good", http.StatusForbidden},
		"an invented token":  {"/metrics", "Bearer invented", http.StatusUnauthorized},
		"no token":           {"/metrics", "", http.StatusUnauthorized},
		"an empty token":     {"/metrics", "Bearer ", http.StatusUnauthorized},
		"a password":         {"/metrics", "Basic good", http.StatusUnauthorized},
		"a very large token": {"/metrics", "Bearer " + strings.Repeat("x", 16<<10+1), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newReviewer().read(t, tt.path, tt.authorization); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}

// TestReaderIsReviewedWhole: the API server decides with all that it knows of the user.
func TestReaderIsReviewedWhole(t *testing.T) {
	r := newReviewer()
	r.read(t, "/metrics", "Bearer good")
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "prometheus", UID: "7", Groups: []string{"monitoring"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"a"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}
	if diff := cmp.Diff(want, r.asked); diff != "" {
		t.Errorf("review (-want +got):\n%s", diff)
	}
}

// TestReadersAreCached: a decision serves several requests for the same path with the same token, and a failure does not.
func TestReadersAreCached(t *testing.T) {
	r := newReviewer()
	r.failing = true
	if got := r.read(t, "/metrics", "Bearer good"); got != http.StatusInternalServerError {
		t.Errorf("status %d without an answer of the API server, want 500", got)
	}
	r.failing = false
	for range 3 {
		if got := r.read(t, "/metrics", "Bearer good"); got != http.StatusOK {
			t.Errorf("status %d, want 200", got)
		}
		if got := r.read(t, "/metrics", "Bearer invented"); got != http.StatusUnauthorized {
			t.Errorf("status %d for an invented token, want 401", got)
		}
	}
	if got := r.read(t, "/debug", "Bearer good"); got != http.StatusForbidden {
		t.Errorf("status %d for another path, want 403", got)
	}
	if r.tokens != 3 || r.permissions != 2 {
		t.Errorf("%d reviews of tokens and %d of permissions, want 3 and 2", r.tokens, r.permissions)
	}
}
