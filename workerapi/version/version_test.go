package version

import (
	"runtime"
	"testing"
)

func TestSlots(t *testing.T) {
	tests := map[string]struct {
		version, commit string
		parts           []string
		want            string
	}{
		"between releases": {version: "dev", commit: "1a2b3c", want: "scanner-operator dev (commit 1a2b3c, " + runtime.Version() + ")"},
		"a release":        {version: "0.1.0", want: "scanner-operator 0.1.0 (" + runtime.Version() + ")"},
		"made of more":     {version: "0.1.0", parts: []string{"syft 1.2"}, want: "scanner-operator 0.1.0 (" + runtime.Version() + ", syft 1.2)"},
	}
	defer func(version, commit string) { Version, Commit = version, commit }(Version, Commit)
	for name, test := range tests {
		Version, Commit = test.version, test.commit
		if got := Line("scanner-operator", test.parts...); got != test.want {
			t.Errorf("%s: want %q, got %q", name, test.want, got)
		}
	}
}
