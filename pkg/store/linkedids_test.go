package store

import (
	"testing"
)

func TestLinksAreDirect(t *testing.T) {
	for _, test := range []struct {
		id      string
		aliases []string
		otherID string
		others  []string
		want    bool
	}{
		{"GHSA-a", nil, "CVE-1", []string{"GHSA-a"}, true},
		{"GHSA-a", nil, "CVE-1", []string{"ghsa-A"}, true},
		{"CVE-1", []string{"GHSA-b", "GHSA-a"}, "GHSA-a", nil, true},
		{"CVE-1", []string{"RHSA-1"}, "CVE-2", []string{"RHSA-1"}, false},
		{"CVE-1", nil, "CVE-2", nil, false},
	} {
		if got := areLinked(test.id, test.aliases, test.otherID, test.others); got != test.want {
			t.Errorf("%s %v and %s %v are one: %t, want %t", test.id, test.aliases, test.otherID, test.others, got, test.want)
		}
	}
}
