package main

import "fmt"

// scorecardVersion is that of the image with scorecard's tests.
const scorecardVersion = "v1.42.3"

// scorecardTests are all that operator-sdk has.
var scorecardTests = []struct{ suite, name string }{
	{"basic", "basic-check-spec"},
	{"olm", "olm-bundle-validation"},
	{"olm", "olm-crds-have-validation"},
	{"olm", "olm-crds-have-resources"},
	{"olm", "olm-spec-descriptors"},
	{"olm", "olm-status-descriptors"},
}

// scorecardFile configures "operator-sdk scorecard", which runs these tests as pods of a cluster.
func scorecardFile() []byte {
	text := "apiVersion: scorecard.operatorframework.io/v1alpha3\nkind: Configuration\nmetadata:\n  name: config\nstages:\n- parallel: true\n  tests:\n"
	for _, test := range scorecardTests {
		text += fmt.Sprintf("  - entrypoint: [scorecard-test, %[2]s]\n    image: quay.io/operator-framework/scorecard-test:%[1]s\n"+
			"    labels: {suite: %[3]s, test: %[2]s-test}\n", scorecardVersion, test.name, test.suite)
	}
	return []byte(text)
}
