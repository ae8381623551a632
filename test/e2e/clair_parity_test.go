package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// atLeastWithClair is the minimum number of matches in each image. Clair has no data about Rocky Linux.
var atLeastWithClair = map[string]int{images.Web: 40, images.API: 10, images.Migrate: 3, images.Cache: 8, images.Rocky: 0, images.Bastion: 4, images.Static: 0}

// checkClairReports compares all matches: the store must have exactly those that clairctl reports.
func checkClairReports(t *testing.T, stored []scenario.ImageFindings) {
	command := clairctlCommand(t)
	api := clairClient(t, command.clair)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			img := imageNamed(t, stored, name)
			digest, err := claircore.ParseDigest(img.PlatformDigest)
			must(t, err)
			raw, err := api.VulnerabilityReport(t.Context(), digest)
			must(t, err)
			want := reported(t, command.report(t, strings.TrimSuffix(env.Reference(name), ":1.0")+"@"+img.PlatformDigest))
			if diff := cmp.Diff(want, reported(t, raw)); diff != "" {
				t.Errorf("matches (-clairctl +Clair's API):\n%s", diff)
			}
			t.Logf("clairctl reports %d matches", len(want))
			if len(want) < atLeastWithClair[name] {
				t.Errorf("clairctl reports %d matches, expected at least %d", len(want), atLeastWithClair[name])
			}
			if diff := cmp.Diff(want, kept(img.Findings)); diff != "" {
				t.Errorf("matches (-clairctl +operator):\n%s", diff)
			}
		})
	}
}

// clairMatch is one vulnerability in Clair's naming, in one package, with all compared properties.
type clairMatch struct {
	Vulnerability, Updater, CVEs, Package, Version, Layer, Fixed string
	// Said is the severity in the source's words, Rated the normalized severity.
	Said, Rated string
}

func sortedMatches(matches []clairMatch) []clairMatch {
	slices.SortFunc(matches, func(a, b clairMatch) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(matches)
}

var cve = regexp.MustCompile(`CVE-\d{4}-\d{4,}`)

// cvesIn returns the CVE IDs in the texts, sorted and without duplicates.
func cvesIn(texts ...string) string {
	found := cve.FindAllString(strings.Join(texts, " "), -1)
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " ")
}

// reported returns the matches of a report.
func reported(t *testing.T, report *claircore.VulnerabilityReport) []clairMatch {
	t.Helper()
	ratings := cvssSeverities(t, report)
	matches := []clairMatch{}
	for id, vulnerabilities := range report.PackageVulnerabilities {
		in := report.Packages[id]
		for _, environment := range report.Environments[id] {
			for _, v := range vulnerabilities {
				is := report.Vulnerabilities[v]
				m := clairMatch{
					Vulnerability: is.Name, Updater: is.Updater, CVEs: cvesIn(is.Name, is.Links), Package: in.Name, Version: in.Version,
					Layer: environment.IntroducedIn.String(), Fixed: is.FixedInVersion, Said: is.Severity, Rated: is.NormalizedSeverity.String(),
				}
				if m.Said == "" {
					m.Said = m.Rated
				}
				if is.NormalizedSeverity == claircore.Unknown {
					m.Rated = ratings[v]
				}
				matches = append(matches, m)
			}
		}
	}
	return sortedMatches(matches)
}

// cvssSeverities returns the highest CVSS rating of each vulnerability in a report; Unknown without a rating.
func cvssSeverities(t *testing.T, report *claircore.VulnerabilityReport) map[string]string {
	t.Helper()
	severities := []string{"Unknown", "Low", "Medium", "High", "Critical"}
	worst := map[string]string{}
	for id := range report.Vulnerabilities {
		worst[id] = severities[0]
	}
	for kind, messages := range report.Enrichments {
		if !strings.Contains(kind, "clair.cvss") {
			t.Errorf("Clair has an enrichment %s: what becomes of it?", kind)
		}
		for _, message := range messages {
			var ratings map[string][]struct{ BaseSeverity string }
			must(t, json.Unmarshal(message, &ratings))
			for id, all := range ratings {
				for _, rating := range all {
					for i, severity := range severities {
						if strings.EqualFold(severity, rating.BaseSeverity) && i > slices.Index(severities, worst[id]) {
							worst[id] = severity
						}
					}
				}
			}
		}
	}
	return worst
}

// kept returns the matches that findings consist of. In the test images, each finding is one match.
func kept(findings []finding.Finding) []clairMatch {
	matches := []clairMatch{}
	for _, f := range findings {
		for _, a := range f.Advisories {
			matches = append(matches, clairMatch{
				Vulnerability: a.ID, Updater: a.Source, CVEs: cvesIn(append(f.Aliases, f.ID)...), Package: f.Package.Name, Version: f.Package.Version,
				Layer: a.Layer, Fixed: strings.Join(a.FixVersions, " "), Said: a.Severity, Rated: f.Severity.String(),
			})
		}
	}
	return sortedMatches(matches)
}

// clairctl is Clair's own command, with addresses of the demo's Clair and registry that it can use.
type clairctl struct{ file, config, clair, registry string }

// clairctlCommand returns the command that CLAIRCTL names.
func clairctlCommand(t *testing.T) clairctl {
	t.Helper()
	c := clairctl{file: os.Getenv("CLAIRCTL"), config: filepath.Join(t.TempDir(), "config.yaml"), clair: clairAddress(t)}
	if c.file == "" {
		t.Fatal("CLAIRCTL does not name the clairctl command; run this by make e2e, which builds it")
	}
	must(t, os.WriteFile(c.config, fmt.Appendf(nil, "auth: {psk: {key: %s, iss: [%s]}}\n", env.ClairKey(), clairIssuer), 0o600))
	// clairctl uses plain HTTP only for registries on the loopback address.
	registry := httptest.NewServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: build.LocalRegistry}))
	t.Cleanup(registry.Close)
	c.registry = strings.TrimPrefix(registry.URL, "http://")
	return c
}

// report returns clairctl's report about an image in the registry.
func (c clairctl) report(t *testing.T, reference string) *claircore.VulnerabilityReport {
	t.Helper()
	reference = strings.Replace(reference, build.LocalRegistry, c.registry, 1)
	command := exec.CommandContext(t.Context(), c.file, "--config", c.config, "--issuer", clairIssuer,
		"report", "--novel", "--host", c.clair, "--out", "json", reference)
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("clairctl report %s: %v\n%s", reference, err, stderr.String())
	}
	var report claircore.VulnerabilityReport
	must(t, json.Unmarshal(out.Bytes(), &report))
	return &report
}

// clairIssuer is the issuer that Clair accepts, which is the operator's.
const clairIssuer = "scanner-operator"

// clairClient returns a client with the operator's authentication, for use on this machine.
func clairClient(t *testing.T, address string) *api.Client {
	t.Helper()
	key, err := api.ParseKey(env.ClairKey())
	must(t, err)
	client, err := api.New(api.Options{URL: address, Auth: func(context.Context) (api.Auth, error) {
		return api.Auth{Key: key, Issuer: clairIssuer}, nil
	}})
	must(t, err)
	return client
}

// clairAddress returns a loopback address that is forwarded to Clair during the test. The API server's service proxy is not usable,
// since it drops the Authorization header.
func clairAddress(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "kubectl", "--namespace", scenario.ClairNamespace, "port-forward", "service/clair", ":6060")
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
