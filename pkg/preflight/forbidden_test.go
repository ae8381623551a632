package preflight

import (
	"net/http"
	"testing"
)

type answering int

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

// TestObserveForbidden: only refusals of requests that need a required permission are reported, with their namespace.
func TestObserveForbidden(t *testing.T) {
	for path, tt := range map[string]struct {
		code int
		want string
	}{
		"/api/v1/namespaces/shop/pods/web":    {http.StatusForbidden, "shop"},
		"/api/v1/pods":                        {http.StatusForbidden, ""},
		"/apis/batch/v1/namespaces/bank/jobs": {http.StatusForbidden, "bank"},
		"/apis/scanner-operator.io/v1alpha1/namespaces/a/imagescans/b/status":       {http.StatusForbidden, "a"},
		"/apis/scanner-operator.io/v1alpha1/namespaces/allowed/imagescans/b/status": {http.StatusOK, "none"},
		"/api/v1/namespaces/shop/secrets/slack":                                     {http.StatusForbidden, "none"},
		"/api/v1/namespaces/shop":                                                   {http.StatusForbidden, "none"},
		"/openapi/v3":                                                               {http.StatusForbidden, "none"},
		"/":                                                                         {http.StatusForbidden, "none"},
	} {
		t.Run(path, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			response, err := ObserveForbidden(answering(tt.code), func(namespace string) { got = namespace }).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if got != tt.want {
				t.Errorf("reported namespace %q, want %q", got, tt.want)
			}
		})
	}
}
