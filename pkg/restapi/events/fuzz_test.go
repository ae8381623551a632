package events

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzSince: a client resumes only at a position of this log, and gets each later change once, or learns that it has to load everything again.
func FuzzSince(f *testing.F) {
	const limit = 4
	log := NewLog()
	for n := range 8 {
		log.Add(Change{Kind: "finding", Namespace: fmt.Sprint(n % 6)})
	}
	for _, seed := range []string{log.idOf(0), log.idOf(5), log.idOf(8), log.idOf(9), log.idOf(-1), log.id, log.id + "-+5", "-5", "", NewLog().idOf(5), log.id + "-9223372036854775808"} {
		f.Add(seed)
		f.Add(strings.TrimPrefix(seed, log.id)) // the ID of a log is random: the fuzzer cannot find it
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, id := range []string{text, log.id + text} {
			position, known := log.positionOf(id)
			if !known {
				continue
			}
			if !strings.HasPrefix(id, log.id+"-") {
				t.Errorf("%q is taken for a position of the log %s", id, log.id)
			}
			changes, end, complete := log.Since(position, limit, func(Change) bool { return true })
			seen := map[Change]bool{}
			for _, change := range changes {
				if seen[change] {
					t.Errorf("after %d, there is %+v twice", position, change)
				}
				seen[change] = true
			}
			mayResume := position >= 0 && position <= end && end-position <= limit+2 // two of the changes have happened again since
			if end != log.End() || len(changes) > limit || complete && !mayResume || !complete && changes != nil {
				t.Errorf("after %d of %d there are %d changes, complete: %v", position, end, len(changes), complete)
			}
		}
	})
}
