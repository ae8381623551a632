// Package sarif writes an image's findings as a SARIF 2.1.0 log
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html), for tools that show the results of scanners,
// such as GitHub's code scanning.
//
// A log has one run, with a rule for each vulnerability and a result for each vulnerability and package. It is valid against OASIS' schema and
// within GitHub's limits, whatever the image contains. The same findings give the same log. The package knows no store and no HTTP.
package sarif

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// MediaType is the media type of a log (https://www.iana.org/assignments/media-types/application/sarif+json).
const MediaType = "application/sarif+json"

// Limits of GitHub (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
const (
	// MaxFindings bounds the findings of a report, and with them the results and the rules of a run.
	MaxFindings = 25_000
	// maxLocations bounds the locations of a result.
	maxLocations = 10
	// maxDescription bounds the short and the full description of a rule, in bytes. GitHub's limit is as many characters.
	maxDescription = 1024
)

// Report is the input for a log.
type Report struct {
	// Cluster is the name of the cluster; empty if it has none.
	Cluster string
	// Reference is an image reference of a pod; may be empty. Repositories are those in all references of pods, sorted.
	Reference    string
	Repositories []string
	Key          image.Key
	// PlatformDigest is that of the platform's own manifest.
	PlatformDigest string
	// Engine is the engine's name, and Tool the engine with its version, if known.
	Engine, Tool string
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// NotCovered are the ecosystems that the engine does not analyze.
	NotCovered []string
	// Findings are the worst ones, worst first, at most MaxFindings. Total is the number of all findings of the image.
	Findings []Finding
	Total    int
}

// Finding is a finding in an image.
type Finding struct {
	finding.Finding
	FirstSeen time.Time
	// Source is the other tool that found it; empty for the engine.
	Source string
	// Exception that suppresses the finding; nil if none does.
	Exception *exception.Exception
}

// Write writes the log to w. It returns only errors of w.
func Write(w io.Writer, r Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(log{
		Schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json", Version: "2.1.0", Runs: []run{r.run()},
	})
}

// run returns the run. Its ID up to the last slash is the category of the results for GitHub: those of an upload replace the earlier ones of the
// same category.
func (r Report) run() run {
	engine, _, _ := strings.Cut(r.Engine, " ") // the rest of a name is an address
	made := run{
		Tool: tool{driver{
			Name: "Scanner Operator", Version: version.Version, InformationURI: "https://github.com/scanner-operator/scanner-operator", Rules: []rule{},
		}},
		AutomationDetails: automationDetails{strings.Join([]string{"scanner-operator", r.repository(), r.Key.Platform.String(), engine, ""}, "/")},
		Results:           []result{},
		Properties: runProperties{
			Cluster: r.Cluster, Image: r.Reference, Digest: r.Key.Digest, Platform: r.Key.Platform.String(), PlatformDigest: r.PlatformDigest, Engine: r.Engine, Tool: r.Tool,
			DataVersion: r.DataVersion, MatchTime: r.MatchedAt.UTC(), Distro: r.Distro, NotCovered: r.NotCovered,
			Findings: r.Total, Truncated: len(r.Findings) < r.Total,
		},
	}
	rules := map[string]int{}
	for _, group := range grouped(r.Findings, func(f Finding) string { return f.ID }) {
		rules[group[0].ID] = len(rules)
		made.Tool.Driver.Rules = append(made.Tool.Driver.Rules, ruleOf(group))
	}
	for _, group := range grouped(r.Findings, func(f Finding) [2]string { return [2]string{f.ID, f.Package.Name} }) {
		made.Results = append(made.Results, r.result(group, rules[group[0].ID]))
	}
	return made
}

// repository returns the repository that identifies the image, whatever its tags and digests are. It is the digest if no pod names the image.
func (r Report) repository() string {
	if len(r.Repositories) == 0 {
		return strings.TrimPrefix(r.Key.Digest, "sha256:")
	}
	return r.Repositories[0]
}

// grouped groups findings by a key. Groups and the findings in them keep their order.
func grouped[K comparable](findings []Finding, key func(Finding) K) (groups [][]Finding) {
	at := map[K]int{}
	for _, f := range findings {
		k := key(f)
		i, known := at[k]
		if !known {
			i, at[k] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}
