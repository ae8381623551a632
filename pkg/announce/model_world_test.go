package announce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// singles is the number of vulnerabilities that change one by one. bulk is the number of those that disappear together.
	singles = 6
	bulk    = 60
	// maxMade bounds the images that are created, so that the bulk stays a large part of all findings.
	maxMade = 7
)

// bulkRepository is that of an image that has nothing but the bulk, and runs unless nothing does.
const bulkRepository = "registry.example.com/bulk"

// repositories are those whose images are rolled out and removed.
var repositories = []string{"registry.example.com/a", "registry.example.com/b", "registry.example.com/c"}

// fact is what the vulnerability data states about one vulnerability.
type fact struct {
	severity           finding.Severity
	fixable, exploited bool
	// hasCVE is true if the data has the CVE as well as the GHSA.
	hasCVE bool
}

// knowledge is what the data states about a vulnerability, and the first version of the engine that finds it.
type knowledge struct {
	fact
	known bool
	tool  int
}

// container is an image and the vulnerabilities that it really contains.
type container struct {
	repository string
	number     int
	// workload is the name of the workload that runs the image.
	workload string
	content  []int
}

func (c *container) name() string { return fmt.Sprintf("%s number %d", c.repository, c.number) }

func (c *container) key() image.Key { return keyOf(c.name()) }

// reportOf is an image's last report, and the vulnerabilities that are missing in only one version of the data.
type reportOf struct {
	made    string
	facts   map[int]fact
	missing map[int]string
}

// decision is an exception about a vulnerability, in one repository or (empty) in all.
type decision struct {
	id         string
	repository string
	expires    time.Time
}

// world is a Scanner's images, the vulnerability data and the exceptions.
type world struct {
	rt       *rapid.T
	path     string
	archive  *faultyStore
	now      time.Time
	settings Settings
	notices  map[string]bool
	data     int
	tools    map[string]int
	knows    []knowledge
	made     int
	bulk     *container
	// running are the images that run, and recent those whose last pods have ended, by repository.
	running, recent map[string][]*container
	// reports by engine and image.
	reports map[string]map[*container]*reportOf
	// exploited is whether the engine's latest report with an ID marks it as known exploited, by engine and ID.
	exploited map[string]bool
	// anomalySince is when the bulk disappeared from an engine's findings.
	anomalySince map[string]time.Time
	decisions    []decision
	random       *rand.ChaCha8
}

func newWorld(t *testing.T, rt *rapid.T, template []byte) *world {
	t.Helper()
	w := &world{
		rt: rt, path: filepath.Join(t.TempDir(), "store.db"), now: noon, random: rand.NewChaCha8([32]byte{2}),
		notices: map[string]bool{}, tools: map[string]int{grype: 1, clair: 1}, running: map[string][]*container{}, recent: map[string][]*container{},
		reports:   map[string]map[*container]*reportOf{grype: {}, clair: {}},
		exploited: map[string]bool{}, anomalySince: map[string]time.Time{},
		settings: Settings{
			Namespace: "shop", Scanner: "default", Receiver: "team", Generation: 1,
			Filter:    store.ChangeFilter{MinSeverity: finding.High, Engine: grype},
			GroupWait: 30 * time.Second, GroupInterval: 5 * time.Minute, FirstScan: FirstScanSummary, Notices: true,
		},
	}
	must(rt, writeFile(w.path, template))
	w.open()
	for v := range singles {
		w.knows = append(w.knows, knowledge{w.drawFact(), true, 1 + v%2})
	}
	for range bulk {
		w.knows = append(w.knows, knowledge{fact{severity: finding.High, hasCVE: true}, true, 1})
	}
	w.bulk = &container{repository: bulkRepository}
	for v := range bulk {
		w.bulk.content = append(w.bulk.content, singles+v)
	}
	w.run(w.bulk)
	return w
}

// scaleToZero has nothing run, nor any image kept that ran before. It returns what ran.
func (w *world) scaleToZero() (ran []*container) {
	for _, repository := range append(slices.Clone(repositories), bulkRepository) {
		ran = append(ran, w.running[repository]...)
		w.stop(repository)
		w.expire(repository)
	}
	return ran
}

// scaleUp runs the bulk again, if it does not run.
func (w *world) scaleUp() {
	if len(w.running[bulkRepository]) == 0 {
		w.run(w.bulk)
	}
}

func must(t testingT, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func (w *world) open() {
	before := w.archive
	w.archive = openFaultyStore(w.rt, w.path, func() time.Time { return w.now })
	if before != nil {
		w.archive.onStateSaved, w.archive.onMarked = before.onStateSaved, before.onMarked
	}
}

// restart opens the store again, as another process would.
func (w *world) restart() {
	must(w.rt, w.archive.Close())
	w.open()
}

func (w *world) drawFact() fact {
	return fact{
		severity:  rapid.SampledFrom([]finding.Severity{finding.Critical, finding.High, finding.Medium, finding.Unknown}).Draw(w.rt, "severity"),
		fixable:   rapid.Bool().Draw(w.rt, "fixable"),
		exploited: rapid.IntRange(0, 5).Draw(w.rt, "exploited") == 0,
		hasCVE:    rapid.Bool().Draw(w.rt, "named"),
	}
}

func cveOf(v int) string { return fmt.Sprintf("CVE-2026-%04d", v) }

func ghsaOf(v int) string { return fmt.Sprintf("GHSA-aaaa-bbbb-%04d", v) }

// numberOf returns the number of the vulnerability with an ID.
func numberOf(id string) (v int) {
	_, _ = fmt.Sscanf(id[strings.LastIndex(id, "-")+1:], "%d", &v)
	return v
}

func (f fact) ids(v int) []string {
	if f.hasCVE {
		return []string{cveOf(v), ghsaOf(v)}
	}
	return []string{ghsaOf(v)}
}

// hostileText is a hostile text for names and versions.
const hostileText = "<!channel>\u202e\x00\x1b[31m\"}]{{`*_~\u2028"

func packageOf(v int) string { return fmt.Sprintf("lib%d%s", v%3, hostileText) }

// findingOf returns the finding that an engine reports for vulnerability v.
func (f fact) findingOf(v int) finding.Finding {
	ids := f.ids(v)
	found := finding.Finding{
		ID: ids[0], Aliases: ids[1:], Severity: f.severity, KnownExploited: f.exploited, FixState: finding.FixStateNotFixed,
		Package:     finding.Package{Name: packageOf(v), Version: strings.Repeat(hostileText, 50), Type: "deb"},
		Description: strings.Repeat(hostileText, 10), URL: "https://example.com/" + hostileText,
	}
	if f.fixable {
		found.FixState, found.FixVersions = finding.FixStateFixed, []string{strings.Repeat(hostileText, 50), "2"}
	}
	return found
}

// finds reports whether the current engine finds a vulnerability in an image that contains it. Clair does not find vulnerability 1.
func (w *world) finds(v int) bool {
	k := w.knows[v]
	return k.known && w.tools[w.engine()] >= k.tool && (w.engine() != clair || v != 1)
}

func (w *world) engine() string { return w.settings.Filter.Engine }

// version identifies the current data and engine version.
func (w *world) version() string { return fmt.Sprintf("%d by %d", w.data, w.tools[w.engine()]) }

// run starts an image beside others of its repository. It replaces what its workload ran before.
func (w *world) run(c *container) {
	w.running[c.repository] = append(w.running[c.repository], c)
	w.recent[c.repository] = slices.DeleteFunc(w.recent[c.repository], func(other *container) bool { return other == c || other.workload == c.workload })
	w.use(c)
}

// end ends the pods of all images of a repository.
func (w *world) end(repository string) {
	for _, c := range w.running[repository] {
		must(w.rt, w.archive.SetUsage(context.Background(), store.ImageUsage{Scanner: scannerUID, Namespace: "shop", Key: c.key(), Engine: w.engine()}))
	}
	w.recent[repository] = append(w.recent[repository], w.running[repository]...)
	delete(w.running, repository)
}

// start runs the images of a repository again whose pods had ended.
func (w *world) start(repository string) {
	for _, c := range slices.Clone(w.recent[repository]) {
		w.run(c)
	}
}

// expire ends the time for which ended images stay in use.
func (w *world) expire(repository string) {
	for _, c := range w.recent[repository] {
		must(w.rt, w.archive.ReleaseImage(context.Background(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: c.key()}, false))
	}
	delete(w.recent, repository)
}

// use saves the image's workload in the store, for the current engine.
func (w *world) use(c *container) {
	used := store.ImageUsage{Scanner: scannerUID, Namespace: "shop", Key: c.key(), Engine: w.engine()}
	workload := store.Workload{
		Namespace: "shop", Kind: "CronJob", Name: c.workload, Container: "c", Repository: c.repository, Reference: c.repository + ":1", Completes: true,
	}
	if slices.Contains(w.recent[c.repository], c) {
		used.Ended = []store.EndedWorkload{{Workload: workload, At: w.now}}
	} else {
		used.Workloads = []store.Workload{workload}
	}
	ctx := context.Background()
	must(w.rt, w.archive.SaveCatalog(ctx, store.Catalog{
		Engine: w.engine(), Key: c.key(), PlatformDigest: digestOf(c.name()), CatalogedAt: w.now,
	}, nil))
	must(w.rt, w.archive.SetUsage(ctx, used))
}

// stop removes all running images of a repository.
func (w *world) stop(repository string) {
	for _, c := range w.running[repository] {
		must(w.rt, w.archive.ReleaseImage(context.Background(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: c.key()}, false))
	}
	delete(w.running, repository)
}

// all returns the images in use.
func (w *world) all() []*container {
	var all []*container
	for _, repository := range append(slices.Clone(repositories), bulkRepository) {
		all = append(all, w.inUse(repository)...)
	}
	return all
}

// inUse returns the images of a repository that run or have ended recently.
func (w *world) inUse(repository string) []*container {
	return slices.Concat(w.running[repository], w.recent[repository])
}

// scan saves a report of an image.
func (w *world) scan(c *container) {
	before := w.reports[w.engine()][c]
	now := &reportOf{made: w.version(), facts: map[int]fact{}, missing: map[int]string{}}
	var findings []finding.Finding
	for _, v := range c.content {
		if w.finds(v) {
			now.facts[v] = w.knows[v].fact
			findings = append(findings, now.facts[v].findingOf(v))
			w.exploited[w.engine()+now.facts[v].ids(v)[0]] = now.facts[v].exploited
		}
	}
	_, err := w.archive.SaveReport(context.Background(), store.Report{
		Subject:     store.Subject{PlatformDigest: digestOf(c.name()), Engine: w.engine()},
		DataVersion: now.made, MatchedAt: w.now, Findings: findings,
	}, "")
	must(w.rt, err)
	if before != nil {
		now.updateMissing(before)
	}
	w.reports[w.engine()][c] = now
	if c.repository == bulkRepository {
		w.recordAnomaly(before, now)
	}
}

// updateMissing updates what is missing. A vulnerability counts as gone only when it is missing in two versions of the data.
func (r *reportOf) updateMissing(before *reportOf) {
	for v := range before.facts {
		if _, found := r.facts[v]; !found {
			r.missing[v] = r.made
		}
	}
	for v, since := range before.missing {
		if _, found := r.facts[v]; !found && since == r.made {
			r.missing[v] = since
		}
	}
}

// recordAnomaly records when the bulk disappears, and when it is back.
func (w *world) recordAnomaly(before, now *reportOf) {
	switch {
	case len(now.facts) > 0:
		delete(w.anomalySince, w.engine())
	case before != nil && len(before.facts) > 0:
		w.anomalySince[w.engine()] = w.now
	}
}

// hasAnomaly reports whether the data anomaly lasts, in which nothing may be announced as fixed.
func (w *world) hasAnomaly() bool {
	since, lost := w.anomalySince[w.engine()]
	return lost && w.now.Before(since.Add(14*24*time.Hour))
}

// reportedFacts returns the facts about a vulnerability in the reports of a repository's images in use.
func (w *world) reportedFacts(repository string, v int) (sightings []fact) {
	for _, c := range w.inUse(repository) {
		if r := w.reports[w.engine()][c]; r != nil {
			if f, found := r.facts[v]; found {
				f.exploited = w.exploited[w.engine()+f.ids(v)[0]]
				sightings = append(sightings, f)
			}
		}
	}
	return sightings
}

// isComplete reports whether a repository runs and all its images in use have a result. unconfirmed reports whether a vulnerability is missing
// in only one version of the data.
func (w *world) isComplete(repository string) bool {
	return len(w.running[repository]) > 0 &&
		!slices.ContainsFunc(w.inUse(repository), func(c *container) bool { return w.reports[w.engine()][c] == nil })
}

func (w *world) unconfirmed(repository string, v int) bool {
	return slices.ContainsFunc(w.inUse(repository), func(c *container) bool {
		r := w.reports[w.engine()][c]
		return r != nil && r.missing[v] != ""
	})
}

// isSuppressed reports whether an exception suppresses a finding in a repository.
func (w *world) isSuppressed(repository string, v int, f fact) bool {
	return slices.ContainsFunc(w.decisions, func(d decision) bool {
		return (d.expires.IsZero() || w.now.Before(d.expires)) && slices.Contains(f.ids(v), d.id) && (d.repository == "" || d.repository == repository)
	})
}

// exceptions returns the decisions as an exception.Set.
func (w *world) exceptions() exception.Set {
	var all []exception.Exception
	for i, d := range w.decisions {
		e := exception.Exception{UID: fmt.Sprint(i), Namespace: "shop", Name: fmt.Sprint(i), Vulnerabilities: []string{d.id}, Expires: d.expires}
		if d.repository != "" {
			e.Images = []string{d.repository}
		}
		all = append(all, e)
	}
	return exception.NewSet(all, w.now)
}

// passes reports whether a finding passes the receiver's filter.
func (w *world) passes(f fact) bool {
	filter := w.settings.Filter
	switch {
	case f.exploited:
		return true
	case f.severity == finding.Unknown:
		return filter.Unknown == store.UnknownAlways && (f.fixable || !filter.OnlyFixable) || filter.Unknown != store.UnknownNever && f.fixable
	}
	return f.severity >= filter.MinSeverity && (f.fixable || !filter.OnlyFixable)
}

// passing returns the sightings that pass the receiver's filter and are not suppressed.
func (w *world) passing(repository string, v int) []fact {
	return slices.DeleteFunc(w.reportedFacts(repository, v), func(f fact) bool { return !w.passes(f) || w.isSuppressed(repository, v, f) })
}

// coverage returns the Scanner's coverage of the images.
func (w *world) coverage() Coverage {
	coverage := Coverage{DataSince: noon.Add(-time.Hour)}
	for _, c := range w.all() {
		img := Image{
			Key: c.name(), Repositories: []string{c.repository}, State: image.Pending, Recent: slices.Contains(w.recent[c.repository], c),
		}
		if r := w.reports[w.engine()][c]; r != nil {
			img.State, img.Current = image.Scanned, r.made == w.version()
		}
		coverage.Images = append(coverage.Images, img)
	}
	for id, holds := range w.notices {
		if holds {
			coverage.Notices = append(coverage.Notices, Notice{ID: id, Kind: NoticeScansFailing, Detail: strings.Repeat(hostileText, 100)})
		}
	}
	return coverage
}
