package e2e

import (
	"bufio"
	"context"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quay/claircore"

	clairapi "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/story"
)

// atLeastWithClair is how many matches an image must have. Clair has no data of Rocky Linux.
var atLeastWithClair = map[string]int{images.Web: 40, images.API: 10, images.Migrate: 3, images.Cache: 8, images.Rocky: 0, images.Static: 0}

// What the store has is what Clair's own report of the same image contains, match by match: nothing is lost, and nothing
// is made up.
func TestClairParity(t *testing.T) {
	ns := namespace(t, "clair-parity")
	clair := usingClair()
	must(t, clair.RunPods(t.Context(), ns,
		story.Pod{Name: "web", Image: env.Reference(images.Web)},
		story.Pod{Name: "api", Image: env.Reference(images.API), Init: env.Reference(images.Migrate)},
		story.Pod{Name: "cache", Image: env.Reference(images.Cache)},
		story.Pod{Name: "rocky", Image: env.Reference(images.Rocky)},
		story.Pod{Name: "static", Image: env.Reference(images.Static)},
	))
	must(t, clair.MakeScanner(t.Context(), ns, story.ScannerSettings{}))
	must(t, clair.Covered(t.Context(), ns, int32(len(atLeastWithClair)), 0))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	api := clairClient(t)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			img := imageNamed(t, stored, name)
			digest, err := claircore.ParseDigest(img.PlatformDigest)
			must(t, err)
			report, err := api.VulnerabilityReport(t.Context(), digest)
			must(t, err)
			want := reported(report)
			t.Logf("Clair reports %d matches", len(want))
			if len(want) < atLeastWithClair[name] {
				t.Errorf("Clair reports %d matches, expected at least %d", len(want), atLeastWithClair[name])
			}
			if diff := cmp.Diff(want, kept(img.Findings)); diff != "" {
				t.Errorf("matches (-Clair +operator):\n%s", diff)
			}
		})
	}
}

// clairMatch is one vulnerability by Clair's name for it, in one package, with the CVEs that it is about.
type clairMatch struct{ Vulnerability, Package, Version, CVEs string }

func sortedMatches(matches []clairMatch) []clairMatch {
	slices.SortFunc(matches, func(a, b clairMatch) int {
		return strings.Compare(a.Vulnerability+" "+a.Package+" "+a.Version, b.Vulnerability+" "+b.Package+" "+b.Version)
	})
	return slices.Compact(matches)
}

var cve = regexp.MustCompile(`CVE-\d{4}-\d{4,}`)

// cvesIn are those that texts mention, each once.
func cvesIn(texts ...string) string {
	found := cve.FindAllString(strings.Join(texts, " "), -1)
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " ")
}

// reported are the matches of a report.
func reported(report *claircore.VulnerabilityReport) []clairMatch {
	matches := []clairMatch{}
	for id, vulnerabilities := range report.PackageVulnerabilities {
		for _, v := range vulnerabilities {
			vulnerability, in := report.Vulnerabilities[v], report.Packages[id]
			matches = append(matches, clairMatch{vulnerability.Name, in.Name, in.Version, cvesIn(vulnerability.Name, vulnerability.Links)})
		}
	}
	return sortedMatches(matches)
}

// kept are the matches behind findings.
func kept(findings []finding.Finding) []clairMatch {
	matches := []clairMatch{}
	for _, f := range findings {
		for _, advisory := range f.Advisories {
			matches = append(matches, clairMatch{advisory.ID, f.Package.Name, f.Package.Version, cvesIn(append(f.Aliases, f.ID)...)})
		}
	}
	return sortedMatches(matches)
}

// clairClient speaks to Clair as the operator does, from here.
func clairClient(t *testing.T) *clairapi.Client {
	t.Helper()
	key, err := clairapi.ParseKey(env.ClairKey())
	must(t, err)
	client, err := clairapi.New(clairapi.Options{URL: clairAddress(t), Auth: func(context.Context) (clairapi.Auth, error) {
		return clairapi.Auth{Key: key, Issuer: "scanner-operator"}, nil
	}})
	must(t, err)
	return client
}

// clairAddress is an address of this machine that leads to Clair for the time of the test: the API server's own way to
// Services keeps the Authorization header for itself.
func clairAddress(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "kubectl", "--namespace", story.ClairNamespace, "port-forward", "service/clair", ":6060")
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() }) // ends with the test's context
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	_, rest, found := strings.Cut(line, "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	if !found {
		t.Fatalf("kubectl port-forward says %q", line)
	}
	return "http://" + address
}
