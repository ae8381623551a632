package ui

import (
	"net/url"
	"strings"
)

// Routes of pages that programs link to. Each is one of routes.json.
const (
	VulnerabilitiesPage = "/vulnerabilities"
	VulnerabilityPage   = "/vulnerabilities/{id}"
	ImagesPage          = "/images"
	ScannerPage         = "/namespaces/{namespace}/scanners/{name}"
	ClusterScannerPage  = "/clusterscanners/{name}"
)

// PageURL returns the address of a page. base is where people reach the web UI (config.UI.URL). Values replace the parameters of the route, in
// their order. Parameters of the query without a value are left out.
func PageURL(base, route string, query map[string]string, values ...string) string {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i], values = url.PathEscape(values[0]), values[1:]
		}
	}
	parameters := url.Values{}
	for name, value := range query {
		if value != "" {
			parameters.Set(name, value)
		}
	}
	address := strings.TrimSuffix(base, "/") + strings.Join(parts, "/")
	if len(parameters) > 0 {
		address += "?" + parameters.Encode()
	}
	return address
}
