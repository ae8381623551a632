package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestUpdatesGoOnWhereTheyStopped checks that an update with more edits than are held at a time goes on with the repository where it
// stopped, and looks at those before it no more.
func TestUpdatesGoOnWhereTheyStopped(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		long := strings.Repeat("x", 30<<10)
		for _, name := range []string{"a", "b", "c"} {
			var all []finding.Finding
			for i := range 200 {
				all = append(all, vulnerable(fmt.Sprintf("CVE-2024-%05d", i), fmt.Sprintf("%s-%s", name, long)))
			}
			f.running(t, "image-"+name, name, all...)
		}
		filter := ChangeFilter{Changes: []diff.Change{diff.ChangeFixed}}
		from := func(repository string) string {
			return got[string](t)(f.updateFrom(t.Context(), "scanner", "slack", filter, UpdateAll, repository))
		}
		recordedIn := func(repository string) (n int) {
			must(t, f.reading().QueryRowContext(t.Context(), `SELECT count(*) FROM announcements WHERE repository = ?`, repository).Scan(&n))
			return n
		}
		equal(t, "the second part", from("b"), "c")
		equal(t, "records of the repository before", recordedIn("a"), 0)
		equal(t, "the last part", from("c"), "")
		equal(t, "records of the last repository", recordedIn("c"), 200)
		must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, UpdateAll))
		equal(t, "records of the first repository", recordedIn("a"), 200)
	})
}
