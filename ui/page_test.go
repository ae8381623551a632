package ui

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestPageURL: addresses are those of pages, and names cannot leave their part of an address.
func TestPageURL(t *testing.T) {
	var known []string
	if err := json.Unmarshal(routes, &known); err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{VulnerabilitiesPage, VulnerabilityPage, ImagesPage, ScannerPage, ClusterScannerPage} {
		if !slices.Contains(known, route) {
			t.Errorf("%s is not in routes.json", route)
		}
	}
	for want, got := range map[string]string{
		"https://a.example/vulnerabilities?minSeverity=High&namespace=shop": PageURL("https://a.example/", VulnerabilitiesPage, map[string]string{"namespace": "shop", "minSeverity": "High", "fixable": ""}),
		"https://a.example/x/vulnerabilities/a%2F%3Fb":                      PageURL("https://a.example/x", VulnerabilityPage, nil, "a/?b"),
		"https://a.example/namespaces/shop/scanners/all":                    PageURL("https://a.example", ScannerPage, nil, "shop", "all"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
