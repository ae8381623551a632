package match_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/fixture"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/match"
)

func TestMeasure(t *testing.T) {
	raw, _ := os.ReadFile("/var/lib/dpkg/status")
	release, _ := os.ReadFile("/etc/os-release")
	db := store(t)
	for _, all := range []bool{false, true} {
		files := fixture.Files{"etc/os-release": string(release)}
		var status strings.Builder
		n := 0
		for _, p := range strings.Split(string(raw), "\n\n") {
			if !all && !strings.Contains(p, "Priority: required") && !strings.Contains(p, "Priority: important") && !strings.Contains(p, "Package: libssl3") && !strings.Contains(p, "Package: curl\n") {
				continue
			}
			n++
			status.WriteString(p + "\n\n")
			name := strings.TrimPrefix(strings.SplitN(p, "\n", 2)[0], "Package: ")
			infos, _ := filepath.Glob("/var/lib/dpkg/info/" + name + "[.:]*")
			infos = append(infos, "/usr/share/doc/"+name+"/copyright")
			for _, f := range infos {
				if c, err := os.ReadFile(f); err == nil {
					files[strings.TrimPrefix(f, "/")] = string(c)
				}
			}
		}
		files["var/lib/dpkg/status"] = status.String()
		start := time.Now()
		s := contents(t, fixture.Image(t, files))
		t.Logf("packages %d, catalogued in %s", n, time.Since(start))
		for name, doc := range map[string]any{"full": full(s), "compact": input.Compact(s)} {
			b, _ := json.Marshal(doc)
			z := fixture.Compress(b)
			var best time.Duration = time.Hour
			findings := 0
			var m0, m1 runtime.MemStats
			for range 7 {
				runtime.GC()
				runtime.ReadMemStats(&m0)
				start := time.Now()
				f, err := input.Receive(bytes.NewReader(z), t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				r, err := match.SBOM(t.Context(), db, f)
				if err != nil {
					t.Fatal(err)
				}
				best = min(best, time.Since(start))
				runtime.ReadMemStats(&m1)
				findings = len(r.Findings)
			}
			t.Logf("%s: %d bytes, zst %d, receive+match best %s, allocated %d MB, findings %d", name, len(b), len(z), best, (m1.TotalAlloc-m0.TotalAlloc)>>20, findings)
		}
	}
}
