// Package fake is a backend that derives findings from an image's name. It is a supported engine for tests, benchmarks and trials: it
// pulls nothing, and otherwise behaves like any other engine.
//
// The last path element of the repository selects the result:
//   - "vulnerable": one Critical and one High finding, and all findings given to Publish;
//   - "evolving": findings that are unique to the image and depend on its digest;
//   - "riddled": as many findings as a large image has, or as many as the name says: "riddled-20000";
//   - "listed": no findings, and an SBOM, also as CycloneDX;
//   - "hostile": findings whose texts are markup, formulas, control characters and very long;
//   - "failing": indexing fails;
//   - "slow": indexing never ends.
//
// Any other image is clean.
package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/zstd"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// IndexedMessage is the message that is logged for each indexed image. The benchmarks count it.
const IndexedMessage = "Indexed"

// riddledFindings is the number of findings of a "riddled" image whose name says nothing else, and maxRiddledFindings the largest number.
const (
	riddledFindings    = 200
	maxRiddledFindings = 20_000
)

// listedPackages is the number of packages in the SBOM of a "listed" image.
const listedPackages = 250

// Engine is the name under which this backend's reports are stored.
const Engine = "fake"

// Backend implements backend.Backend.
type Backend struct {
	Store *store.Store
	Clock clock.PassiveClock
	// Log receives one line for each indexed image. The zero value discards them.
	Log logr.Logger

	// indexing is held while an image is looked up and indexed: Scanners of many namespaces may request it at once.
	indexing sync.Mutex

	mu    sync.Mutex
	extra []finding.Finding
	built time.Time
}

var _ backend.Backend = (*Backend)(nil)

// Publish adds findings to every "vulnerable" image, as newer vulnerability data would.
func (b *Backend) Publish(extra ...finding.Finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extra = append(b.extra, extra...)
	b.built = b.Clock.Now()
}

// Engine implements backend.Backend.
func (b *Backend) Engine() string { return Engine }

// StartCatalog implements backend.Backend.
func (b *Backend) StartCatalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	switch name := nameOf(img); {
	case strings.Contains(name, "failing"):
		return backend.Progress{}, &backend.Failure{Reason: "ImageNotFound", Message: "the name of the image says that it cannot be found"}
	case strings.Contains(name, "slow"):
		return backend.Waiting(v1alpha1.ReasonCataloging, "the name of the image says that it takes its time", time.Minute), nil
	}
	b.indexing.Lock()
	defer b.indexing.Unlock()
	requested, err := b.Store.RescanRequested(ctx, img.OfScanner())
	if err != nil {
		return backend.Progress{}, err
	}
	if _, err := b.Store.Catalog(ctx, Engine, img.Key, img.Scope); !requested && !errors.Is(err, store.ErrNotFound) {
		return backend.Done, err
	}
	b.Log.Info(IndexedMessage, "digest", img.Key.Digest, "image", img.PullReferences)
	catalog := store.Catalog{
		Engine: Engine, Key: img.Key, Scope: img.Scope, PlatformDigest: img.Key.Digest, Packages: 2, Tool: Engine, CatalogedAt: b.Clock.Now(),
	}
	var artifacts map[store.Artifact]io.Reader
	if strings.Contains(nameOf(img), "listed") {
		var err error
		if artifacts, err = listedArtifacts(); err != nil {
			return backend.Progress{}, err
		}
		catalog.Packages = listedPackages
	}
	return backend.Done, b.Store.SaveCatalog(ctx, catalog, artifacts)
}

// RequestMatch implements backend.Backend. It matches the image at once.
func (b *Backend) RequestMatch(ctx context.Context, img backend.Image) (backend.Progress, error) {
	version, err := b.DataVersion(ctx)
	if err != nil {
		return backend.Progress{}, err
	}
	_, err = b.Store.SaveReport(ctx, store.Report{
		Subject:     store.Subject{PlatformDigest: img.Key.Digest, Scope: img.Scope, Engine: Engine},
		DataVersion: version.Version, MatchedAt: b.Clock.Now(), Findings: b.findings(img),
	}, "")
	return backend.Done, err
}

// DataVersion implements backend.Backend.
func (b *Backend) DataVersion(context.Context) (store.DataVersion, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.built.IsZero() {
		b.built = b.Clock.Now()
	}
	return store.DataVersion{Version: b.built.UTC().Format(time.RFC3339Nano), Built: b.built, Tool: Engine}, nil
}

func (b *Backend) findings(img backend.Image) []finding.Finding {
	name := nameOf(img)
	switch {
	case strings.Contains(name, "riddled"):
		return riddled(name)
	case strings.Contains(name, "hostile"):
		return hostile()
	case strings.Contains(name, "evolving"):
		return evolvingFindings(img.Key.Digest)
	}
	if !strings.Contains(name, "vulnerable") {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return finding.Merge(append([]finding.Finding{
		Finding("CVE-2024-0001", finding.Critical, "openssl", "3.0.1"),
		Finding("CVE-2024-0002", finding.High, "zlib", ""),
	}, b.extra...))
}

// Stages of an "evolving" image. Each stage differs from the one before in one change.
const (
	// StageNew has three findings, none of them with a fix.
	StageNew = iota
	// StageFixAvailable has a fix for the second finding. In StageExploited that finding is also known to be exploited.
	StageFixAvailable
	StageExploited
	// StageFixed lacks the first finding.
	StageFixed
)

// EvolvingDigest returns the digest of an "evolving" image at a stage. The number identifies the image.
func EvolvingDigest(number uint32, stage int) string {
	return fmt.Sprintf("sha256:%x%063x", stage, number)
}

// EvolvingID returns the ID of one of an "evolving" image's findings; which is 1, 2 or 3.
func EvolvingID(number uint32, which int) string {
	return fmt.Sprintf("CVE-2025-%d%05d", which, number)
}

// evolvingFindings returns the findings for a digest of EvolvingDigest. Any other digest gives an arbitrary image and stage.
func evolvingFindings(digest string) []finding.Finding {
	var stage int
	var number uint32
	_, digits, _ := strings.Cut(digest, ":")
	_, _ = fmt.Sscanf(digits[:min(1, len(digits))], "%x", &stage)
	_, _ = fmt.Sscanf(digits[max(0, len(digits)-8):], "%x", &number)
	second := Finding(EvolvingID(number, 2), finding.High, "zlib", "")
	if stage >= StageFixAvailable {
		second = Finding(EvolvingID(number, 2), finding.High, "zlib", "3.0.1")
	}
	second.KnownExploited = stage >= StageExploited
	findings := []finding.Finding{second, Finding(EvolvingID(number, 3), finding.High, "curl", "")}
	if stage < StageFixed {
		findings = append(findings, Finding(EvolvingID(number, 1), finding.Critical, "openssl", ""))
	}
	return findings
}

// listedArtifacts returns an SBOM in Syft's format and as CycloneDX. The name of one package is a formula.
func listedArtifacts() (map[store.Artifact]io.Reader, error) {
	type listed struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Type    string `json:"type"`
	}
	packages := []listed{{Name: "=cmd|' /C calc'!A0", Version: "1.0", Type: "npm"}}
	for i := 1; i < listedPackages; i++ {
		packages = append(packages, listed{Name: fmt.Sprintf("package-%03d", i), Version: "1." + strconv.Itoa(i), Type: "deb"})
	}
	components := slices.Clone(packages)
	for i := range components {
		components[i].Type = "library"
	}
	artifacts := map[store.Artifact]io.Reader{store.ArtifactMatchInput: strings.NewReader("")}
	for artifact, document := range map[store.Artifact]any{
		store.ArtifactSBOM:      map[string]any{"artifacts": packages},
		store.ArtifactCycloneDX: map[string]any{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components},
	} {
		compressed, err := compress(document)
		if err != nil {
			return nil, err
		}
		artifacts[artifact] = bytes.NewReader(compressed)
	}
	return artifacts, nil
}

// compress returns a document as JSON, compressed as the store expects it.
func compress(document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	return encoder.EncodeAll(text, nil), nil
}

// riddled returns findings of all severities, about three for each package. The number may be the end of the image's name.
func riddled(name string) []finding.Finding {
	severities := []finding.Severity{finding.Critical, finding.High, finding.Medium, finding.Low, finding.Negligible, finding.Unknown}
	_, end, _ := strings.Cut(name, "riddled-")
	number, err := strconv.Atoi(end)
	if err != nil || number < 1 || number > maxRiddledFindings {
		number = riddledFindings
	}
	findings := make([]finding.Finding, number)
	for i := range findings {
		findings[i] = Finding(fmt.Sprintf("CVE-2023-%05d", 10000+i), severities[i%len(severities)], fmt.Sprintf("library-%d", i/3), "3.0.1")
	}
	return findings
}

// hostile returns findings as somebody would write them who controls an image and wants to take over what shows them.
func hostile() []finding.Finding {
	markup := Finding("CVE-2024-6660", finding.Critical, `<img src=x onerror="document.title='hacked'">`, "1.0<script>document.title='hacked'</script>")
	markup.Description = strings.Repeat("<b>long</b> ", 64<<10/12)
	markup.URL = "javascript:document.title='hacked'"
	markup.KnownExploited = true
	formula := Finding("CVE-2024-6663", finding.Low, "=cmd|' /C calc'!A0", "@SUM(1+1)*cmd")
	reversed := Finding("CVE-2024-6661", finding.High, "gnp\u202etxt.exe", "")
	reversed.Description = "=cmd|' /C calc'!A0"
	reversed.URL = "https://example.com/?a=1&b=\"><script>"
	long := Finding("CVE-2024-6662", finding.Medium, strings.Repeat("averylongnamewithoutanyspace", 8), strings.Repeat("9", 120))
	return []finding.Finding{markup, reversed, long, formula}
}

// Finding returns a finding in version 3.0.0 of a package, fixed in fixedIn unless that is empty.
func Finding(id string, severity finding.Severity, pkg, fixedIn string) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: severity, FixState: finding.FixStateNotFixed,
		Package: finding.Package{Name: pkg, Version: "3.0.0", Type: "deb", PURL: "pkg:deb/debian/" + pkg + "@3.0.0"},
	}
	if fixedIn != "" {
		f.FixState, f.FixVersions = finding.FixStateFixed, []string{fixedIn}
	}
	return f
}

func nameOf(img backend.Image) string {
	if len(img.PullReferences) == 0 {
		return ""
	}
	repository, _, _ := strings.Cut(img.PullReferences[0], "@")
	return path.Base(repository)
}
