package main

import "fmt"

// scorecardVersion is the tag of the image with the scorecard tests.
const scorecardVersion = "v1.42.3"

// scorecardTests are all tests that operator-sdk provides.
var scorecardTests = []struct{ suite, name string }{
	{"basic", "basic-check-spec"},
	{"olm", "olm-bundle-validation"},
	{"olm", "olm-crds-have-validation"},
	{"olm", "olm-crds-have-resources"},
	{"olm", "olm-spec-descriptors"},
	{"olm", "olm-status-descriptors"},
}

// scorecardFile returns the configuration for "operator-sdk scorecard", which runs these tests as pods in a cluster.
func scorecardFile() []byte {
	text := "apiVersion: scorecard.operatorframework.io/v1alpha3\nkind: Configuration\nmetadata:\n  name: config\nstages:\n- parallel: true\n  tests:\n"
	for _, test := range scorecardTests {
		text += fmt.Sprintf("  - entrypoint: [scorecard-test, %[2]s]\n    image: quay.io/operator-framework/scorecard-test:%[1]s\n"+
			"    labels: {suite: %[3]s, test: %[2]s-test}\n", scorecardVersion, test.name, test.suite)
	}
	return []byte(text)
}
