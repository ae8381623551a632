package store

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestColumnsComeBack checks that columns return what was written.
func TestColumnsComeBack(t *testing.T) {
	f := newStore(t)
	rapid.Check(t, func(t *rapid.T) {
		// Engines may give any Unicode text, with quotes and line ends.
		text := rapid.StringN(0, 20, -1)
		wantPlatform := platform(image.Platform{
			OS: rapid.SampledFrom([]string{"", "linux"}).Draw(t, "os"), Architecture: rapid.SampledFrom([]string{"", "arm"}).Draw(t, "architecture"),
			Variant: rapid.SampledFrom([]string{"", "v7"}).Draw(t, "variant"),
		})
		wantList := list[string](rapid.SliceOfN(text, 0, 4).Draw(t, "list"))
		wantPaths := paths(rapid.SliceOfN(rapid.StringMatching(`/[^\x00]{0,10}`), 0, 4).Draw(t, "paths"))
		var gotPlatform platform
		var gotList list[string]
		var gotPaths paths
		err := f.reader.QueryRow(`SELECT ?, ?, ?`, wantPlatform, wantList, wantPaths).Scan(&gotPlatform, &gotList, &gotPaths)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "platform", gotPlatform, wantPlatform)
		compare(t, "list", gotList, wantList)
		compare(t, "paths", gotPaths, wantPaths)
	})
}
