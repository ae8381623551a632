package connect

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
)

// minTokenSeconds is the shortest time that the API server accepts for a requested token.
const minTokenSeconds = 600

// NoTokenError means that the caller has no token for the REST API, which accepts no client certificate.
type NoTokenError struct {
	// Reason is what the caller has instead.
	Reason string
}

// Error implements error.
func (e *NoTokenError) Error() string {
	return e.Reason + "; the REST API accepts only tokens. Use --service-account NAME, whose token you must be allowed to request " +
		"(create serviceaccounts/token), or --token"
}

// token returns the token to send.
func (o Options) token(ctx context.Context) (string, error) {
	if o.ServiceAccount.Name != "" {
		return o.requestToken(ctx)
	}
	if user := o.Kubernetes.Impersonate.UserName; user != "" {
		// The REST API would see the caller's own token, and show what the caller may see.
		return "", &NoTokenError{Reason: fmt.Sprintf("--as=%s applies to the API server only, and there is no token of that user", user)}
	}
	return bearerToken(ctx, o.Kubernetes)
}

// requestToken creates a token of a ServiceAccount, as "kubectl create token" does.
func (o Options) requestToken(ctx context.Context) (string, error) {
	client, err := corev1client.NewForConfig(o.Kubernetes)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(max(o.TokenSeconds, minTokenSeconds))}}
	answer, err := client.ServiceAccounts(o.ServiceAccount.Namespace).CreateToken(ctx, o.ServiceAccount.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of the ServiceAccount %s: %w", o.ServiceAccount, err)
	}
	return answer.Status.Token, nil
}

// bearerToken returns the token that a request to the API server would carry. The kubeconfig may have it in itself, in a file, or get it from a
// program such as "kubectl oidc-login". client-go knows how for each of them, so a request is made and not sent.
func bearerToken(ctx context.Context, config *rest.Config) (string, error) {
	plain := rest.CopyConfig(config)
	plain.WrapTransport, plain.Transport = nil, nil
	made, err := plain.TransportConfig()
	if err != nil {
		return "", err
	}
	var header string
	capture := roundTripper(func(r *http.Request) (*http.Response, error) {
		header = r.Header.Get("Authorization")
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})
	wrapped, err := transport.HTTPWrappersForConfig(made, capture)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+Service+".invalid", nil)
	if err != nil {
		return "", err
	}
	response, err := wrapped.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("getting a token by the kubeconfig: %w", err)
	}
	_ = response.Body.Close()
	if token, found := strings.CutPrefix(header, "Bearer "); found && token != "" {
		return token, nil
	}
	if made.HasCertAuth() || made.HasCertCallback() {
		return "", &NoTokenError{Reason: "your kubeconfig has a client certificate and no token"}
	}
	return "", &NoTokenError{Reason: "your kubeconfig has no token"}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
