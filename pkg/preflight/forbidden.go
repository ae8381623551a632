package preflight

import (
	"net/http"
	"slices"
	"strings"
)

// forbiddenObserver is an http.RoundTripper that notices refused requests.
type forbiddenObserver struct {
	next   http.RoundTripper
	report func(namespace string)
}

// ObserveForbidden passes requests to next. It calls report with the namespace (empty: none) of each request that the API server refuses
// although it needs a permission in Required. Other requests, such as those for Secrets, are often refused on purpose.
func ObserveForbidden(next http.RoundTripper, report func(namespace string)) http.RoundTripper {
	return forbiddenObserver{next, report}
}

// RoundTrip implements http.RoundTripper.
func (o forbiddenObserver) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		namespace, resource := parsePath(request.URL.Path)
		if slices.ContainsFunc(Required, func(p Permission) bool { return p.Resource.Resource == resource }) {
			o.report(namespace)
		}
	}
	return response, err
}

// parsePath returns the namespace and the resource of a request to the API server: /api/v1/namespaces/shop/pods/web or
// /apis/batch/v1/jobs. Both are empty for other paths.
func parsePath(path string) (namespace, resource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		return parts[1], parts[2]
	}
	return "", parts[0]
}
