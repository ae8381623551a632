// Package backendtest is the contract of package backend as tests that every engine passes. They cover waiting, deduplication, restarts,
// failures and their distinction from outages, and cleanup.
//
// An engine's own tests call Run with a Harness around the engine. Whatever is specific to an engine has tests of its own.
package backendtest

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Images, selected by the last path element of their repository as in package fake.
const (
	// Vulnerable has at least one finding with the first vulnerability data, and one more with each newer version.
	Vulnerable = "registry.example.com/shop/vulnerable"
	// Clean has packages but never a finding.
	Clean = "registry.example.com/shop/clean"
	// Failing cannot be cataloged, for a permanent reason of its own.
	Failing = "registry.example.com/shop/failing"
)

// Scanner identifies the Scanner that an engine is called for.
type Scanner struct{ Namespace, UID string }

// Scanners of two namespaces.
var (
	Shop = Scanner{"shop", "scanner-of-shop"}
	Blog = Scanner{"blog", "scanner-of-blog"}
)

// Harness is an engine and everything that it needs. It starts without vulnerability data, unless the engine always has some.
type Harness interface {
	// Backend returns the Backend of a Scanner. Restart invalidates it.
	Backend(Scanner) backend.Backend
	// Restart replaces the engine by a new one with the same store, as a restart of the manager does.
	Restart()
	Store() *store.Store
	// Image makes an image available for anonymous pulls, and returns its key and pull references.
	Image(repository string) backend.Image
	// Publish makes newer vulnerability data, which the engine has after one or a few calls of Work.
	Publish()
	// Work runs everything that the engine does in the background: current tasks finish, and queued ones are served.
	Work()
	// Now returns the time of the clock, and Advance advances it.
	Now() time.Time
	Advance(time.Duration)
	// CatalogCount returns how often the engine has cataloged an image.
	CatalogCount(backend.Image) int
}

// Breakable is a Harness whose engine can have an outage, which is no failure of any image.
type Breakable interface {
	Break()
	Mend()
}

// ExternalState is a Harness whose engine keeps manifests in another system.
type ExternalState interface {
	// Manifests returns the platform digests that the engine keeps, sorted.
	Manifests() []string
}

// maxCalls is the maximum number of calls until an engine must be done.
const maxCalls = 50

// Run runs the tests of the contract, each with its own harness.
func Run(t *testing.T, start func(*testing.T) Harness) {
	t.Helper()
	for name, test := range map[string]func(*contract){
		"index says what it waits for":                    (*contract).indexes,
		"an image is listed once for everybody":           (*contract).catalogsOnce,
		"what a namespace lists is its own":               (*contract).keepsScopes,
		"a rescan costs who requests it":                  (*contract).rescans,
		"a restart repeats nothing":                       (*contract).restarts,
		"a restart in the middle loses nothing":           (*contract).restartsDuringScan,
		"without data there is no report":                 (*contract).awaitsData,
		"newer data renews all reports and lists nothing": (*contract).renews,
		"a failure is the image's own":                    (*contract).fails,
		"the engine's trouble is no failure":              (*contract).survivesOutage,
		"nothing is left of what nobody has":              (*contract).sweeps,
		"what it keeps is undone with the last Scanner":   (*contract).releasesScanner,
		"what it keeps is undone with the last use":       (*contract).releasesImage,
		"what it says of itself fits":                     (*contract).describes,
	} {
		t.Run(name, func(t *testing.T) { test(&contract{Harness: start(t), t: t}) })
	}
}

// contract is the state of one test.
type contract struct {
	Harness
	t *testing.T
}

func (c *contract) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// image returns an image that a Scanner uses. It is in the cluster scope unless changes set another one.
func (c *contract) image(scanner Scanner, repository string, changes ...func(*backend.Image)) backend.Image {
	c.t.Helper()
	img := c.Image(repository)
	img.Namespace, img.Scanner = scanner.Namespace, scanner.UID
	for _, change := range changes {
		change(&img)
	}
	c.must(c.Store().SetUsage(c.t.Context(), store.ImageUsage{
		Scanner: scanner.UID, Namespace: scanner.Namespace, Key: img.Key, Scope: img.Scope, Engine: c.Backend(scanner).Engine(),
		Workloads: []store.Workload{{Namespace: scanner.Namespace, Kind: "Deployment", Name: "web", Container: "main", Repository: repository, Reference: repository + ":1"}},
	}))
	return img
}

// inItsNamespace gives the image a pull secret, so that its results count in its namespace only.
func inItsNamespace(img *backend.Image) {
	img.Scope, img.PullSecrets = store.Scope(img.Namespace), []string{"pull"}
}

func (c *contract) backendOf(img backend.Image) backend.Backend {
	return c.Backend(Scanner{img.Namespace, img.Scanner})
}

func (c *contract) catalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	return Caller{c.Store(), c.Now}.Catalog(ctx, c.backendOf(img), img)
}

func (c *contract) match(ctx context.Context, img backend.Image) (backend.Progress, error) {
	return Caller{c.Store(), c.Now}.Match(ctx, c.backendOf(img), img)
}

// backendCall is contract.catalog or contract.match.
type backendCall func(context.Context, backend.Image) (backend.Progress, error)

// call calls the method once and checks the form of its result.
func (c *contract) call(what backendCall, img backend.Image) (backend.Progress, error) {
	c.t.Helper()
	progress, err := what(c.t.Context(), img)
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		c.checkReason(failure.Reason, failure.Message)
	case err == nil && !progress.Done:
		c.checkReason(progress.Reason, progress.Message)
		if progress.RequeueAfter <= 0 {
			c.t.Errorf("%s: it does not say when to ask again", progress.Reason)
		}
	}
	return progress, err
}

var reason = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

func (c *contract) checkReason(word, message string) {
	c.t.Helper()
	if !reason.MatchString(word) {
		c.t.Errorf("the reason %q is no CamelCase word that a condition takes", word)
	}
	if message == "" || strings.ContainsAny(message, "\n\r") {
		c.t.Errorf("%s: the message %q is not one line", word, message)
	}
}

// callUntilDone repeats the call, and advances the clock in between, until the image is done or has failed.
func (c *contract) callUntilDone(what backendCall, img backend.Image) error {
	c.t.Helper()
	var last backend.Progress
	for range maxCalls {
		progress, err := c.call(what, img)
		if err != nil || progress.Done {
			return err
		}
		last = progress
		c.Advance(progress.RequeueAfter)
		c.Work()
	}
	c.t.Fatalf("asked %d times, it still says %s: %s", maxCalls, last.Reason, last.Message)
	return nil
}

// scan has an image indexed and matched.
func (c *contract) scan(img backend.Image) {
	c.t.Helper()
	c.must(c.callUntilDone(c.catalog, img))
	c.must(c.callUntilDone(c.match, img))
}

// subject returns the store's subject of an indexed image.
func (c *contract) subject(img backend.Image) store.Subject {
	c.t.Helper()
	engine := c.backendOf(img).Engine()
	cataloged, err := c.Store().Catalog(c.t.Context(), engine, img.Key, img.Scope)
	c.must(err)
	return store.Subject{PlatformDigest: cataloged.PlatformDigest, Scope: img.Scope, Engine: engine}
}

// findings returns the IDs and packages of an image's findings.
func (c *contract) findings(img backend.Image) (ids []string) {
	c.t.Helper()
	found, err := c.Store().Findings(c.t.Context(), c.subject(img))
	c.must(err)
	for _, f := range found {
		ids = append(ids, f.ID+" in "+f.Package.Name)
	}
	slices.Sort(ids)
	return ids
}

// isUncataloged reports whether the engine has no catalog of an image in a credential scope.
func (c *contract) isUncataloged(img backend.Image, scope store.Scope) bool {
	c.t.Helper()
	_, err := c.Store().Catalog(c.t.Context(), c.backendOf(img).Engine(), img.Key, scope)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.t.Fatal(err)
	}
	return err != nil
}

func (c *contract) wantCatalogedOnce(img backend.Image) {
	c.t.Helper()
	if got := c.CatalogCount(img); got != 1 {
		c.t.Errorf("it was listed %d times, want once", got)
	}
}

// indexes checks that cataloging is level-triggered, and that its result is stored under the engine's name.
func (c *contract) indexes() {
	img := c.image(Shop, Vulnerable)
	if _, err := c.call(c.catalog, img); err != nil { // some engines are done by now
		c.t.Fatalf("the first answer is %v", err)
	}
	c.must(c.callUntilDone(c.catalog, img))
	if c.subject(img).PlatformDigest == "" {
		c.t.Error("the platform's manifest is not known")
	}
	if progress, err := c.call(c.catalog, img); err != nil || !progress.Done {
		c.t.Errorf("asked again it says %+v, %v, want that it is done", progress, err)
	}
	c.wantCatalogedOnce(img)
	if one, other := c.Backend(Shop).Engine(), c.Backend(Blog).Engine(); one == "" || one != other {
		c.t.Errorf("the engine is called %q and %q", one, other)
	}
}

func (c *contract) catalogsOnce() {
	c.Publish()
	mine, theirs := c.image(Shop, Vulnerable), c.image(Blog, Vulnerable)
	for range 3 {
		for _, img := range []backend.Image{mine, theirs} {
			if _, err := c.call(c.catalog, img); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.scan(mine)
	c.scan(theirs)
	c.wantCatalogedOnce(mine)
	if c.subject(mine) != c.subject(theirs) {
		c.t.Error("two Scanners have a report each of the same image")
	}
}

func (c *contract) keepsScopes() {
	c.Publish()
	mine, theirs := c.image(Shop, Vulnerable, inItsNamespace), c.image(Blog, Vulnerable, inItsNamespace)
	c.scan(mine)
	for _, scope := range []store.Scope{store.Cluster, theirs.Scope} {
		if !c.isUncataloged(mine, scope) {
			c.t.Errorf("what one namespace listed with its own credentials counts in the scope %q", scope)
		}
	}
	c.scan(theirs)
	if mine, theirs := c.findings(mine), c.findings(theirs); !slices.Equal(mine, theirs) {
		c.t.Errorf("one namespace has the findings %q and the other one %q", mine, theirs)
	}
}

func (c *contract) restarts() {
	c.Publish()
	img := c.image(Shop, Vulnerable)
	c.scan(img)
	found := c.findings(img)
	c.Restart()
	c.Work()
	c.scan(img)
	c.wantCatalogedOnce(img)
	if again := c.findings(img); !slices.Equal(found, again) {
		c.t.Errorf("after the restart there are the findings %q, before %q", again, found)
	}
}

func (c *contract) restartsDuringScan() {
	img := c.image(Shop, Vulnerable)
	if _, err := c.call(c.catalog, img); err != nil {
		c.t.Fatal(err)
	}
	c.Restart()
	c.must(c.callUntilDone(c.catalog, img))
	c.Publish()
	c.Work()
	if _, err := c.call(c.match, img); err != nil {
		c.t.Fatal(err)
	}
	c.Restart()
	c.must(c.callUntilDone(c.match, img))
	if len(c.findings(img)) == 0 {
		c.t.Error("nothing is found")
	}
}

func (c *contract) awaitsData() {
	img := c.image(Shop, Vulnerable)
	var failure *backend.Failure
	switch _, err := c.backendOf(img).DataVersion(c.t.Context()); {
	case err == nil: // the engine always has some data
	case !errors.As(err, &failure) || failure.Reason != v1alpha1.ReasonNoVulnerabilityData:
		c.t.Errorf("without data it says %v, want a failure with the reason %s", err, v1alpha1.ReasonNoVulnerabilityData)
	default:
		c.must(c.callUntilDone(c.catalog, img))
		for range 3 {
			progress, err := c.call(c.match, img)
			if errors.As(err, &failure) || err != nil || progress.Done {
				c.t.Fatalf("without data it says %+v, %v, want that it waits: it is no image's fault", progress, err)
			}
			c.Work()
		}
		if _, err := c.Store().Summary(c.t.Context(), c.subject(img), store.ImageExceptions{}); !errors.Is(err, store.ErrNotFound) {
			c.t.Errorf("without data there is a report: %v", err)
		}
	}
	c.Publish()
	c.Work()
	c.scan(img)
	version, err := c.backendOf(img).DataVersion(c.t.Context())
	if err != nil || version.Version == "" || version.Built.IsZero() || version.Tool == "" {
		c.t.Errorf("the data is %+v, %v, want all of it to be known", version, err)
	}
	if len(c.findings(img)) == 0 {
		c.t.Error("nothing is found")
	}
}

func (c *contract) renews() {
	c.Publish()
	vulnerable, clean := c.image(Shop, Vulnerable), c.image(Shop, Clean)
	c.scan(vulnerable)
	c.scan(clean)
	before, found := c.summary(vulnerable), c.findings(vulnerable)
	c.Advance(time.Hour)
	c.Publish()
	if got := c.findings(vulnerable); !slices.Equal(got, found) {
		c.t.Errorf("until there is another report, the findings are %q, want the last ones", got)
	}
	version := c.newerThan(before.DataVersion)
	c.scan(vulnerable)
	c.scan(clean)
	for _, img := range []backend.Image{vulnerable, clean} {
		c.wantCatalogedOnce(img)
		if got := c.summary(img).DataVersion; got != version.Version || got == before.DataVersion {
			c.t.Errorf("a report is made with the data %q, want %q, which is newer than %q", got, version.Version, before.DataVersion)
		}
	}
	if after := c.findings(vulnerable); len(after) != len(found)+1 {
		c.t.Errorf("newer data finds %q, want one more than %q", after, found)
	}
	if counts := c.summary(clean).Counts; counts != (finding.Counts{}) {
		c.t.Errorf("the clean image has %+v", counts)
	}
}

// newerThan waits until the engine has other data than the given version.
func (c *contract) newerThan(known string) store.DataVersion {
	c.t.Helper()
	for range maxCalls {
		c.Work()
		version, err := c.Backend(Shop).DataVersion(c.t.Context())
		c.must(err)
		if version.Version != known {
			return version
		}
	}
	c.t.Fatalf("the data is still %q", known)
	return store.DataVersion{}
}

func (c *contract) summary(img backend.Image) store.Summary {
	c.t.Helper()
	summary, err := c.Store().Summary(c.t.Context(), c.subject(img), store.ImageExceptions{})
	c.must(err)
	return summary
}

func (c *contract) fails() {
	c.Publish()
	failing, clean := c.image(Shop, Failing), c.image(Shop, Clean)
	for range 2 {
		var failure *backend.Failure
		if err := c.callUntilDone(c.catalog, failing); !errors.As(err, &failure) {
			c.t.Fatalf("an image that cannot be cataloged gets %v, want a failure", err)
		}
		if !c.isUncataloged(failing, failing.Scope) {
			c.t.Error("it has failed, and is listed")
		}
		c.Advance(max(time.Hour, failure.RetryAfter))
		c.Work()
	}
	c.scan(clean)
	if _, err := c.Backend(Shop).DataVersion(c.t.Context()); err != nil {
		c.t.Errorf("one image's failure is said of the engine: %v", err)
	}
}

func (c *contract) survivesOutage() {
	engine, breakable := c.Harness.(Breakable)
	if !breakable {
		c.t.Skip("this engine has no fault of its own")
	}
	c.Publish()
	known, other := c.image(Shop, Vulnerable), c.image(Shop, Clean)
	c.scan(known)
	found := c.findings(known)
	engine.Break()
	for range 3 {
		for what, ask := range map[string]func() (backend.Progress, error){
			"cataloging": func() (backend.Progress, error) { return c.call(c.catalog, other) },
			"matching":   func() (backend.Progress, error) { return c.call(c.match, known) },
		} {
			progress, err := ask()
			var failure *backend.Failure
			if errors.As(err, &failure) || what == "cataloging" && err == nil && progress.Done {
				c.t.Errorf("%s says %+v, %v while the engine is in trouble, want no word about the image", what, progress, err)
			}
		}
		c.Advance(time.Minute)
		c.Work()
	}
	if got := c.findings(known); !slices.Equal(got, found) {
		c.t.Errorf("while the engine is in trouble the findings are %q, want the last ones", got)
	}
	engine.Mend()
	c.Advance(time.Hour)
	c.Work()
	c.scan(other)
	c.scan(known)
}

func (c *contract) sweeps() {
	c.Publish()
	img := c.image(Shop, Vulnerable)
	c.scan(img)
	subject := c.subject(img)
	c.must(c.Store().ReleaseImage(c.t.Context(), store.ScannerImage{Scanner: Shop.UID, Namespace: Shop.Namespace, Key: img.Key}, false))
	c.Advance(24 * time.Hour)
	c.Work()
	_, err := c.Store().Sweep(c.t.Context(), time.Now().Add(1000*time.Hour))
	c.must(err)
	if _, err := c.Store().Summary(c.t.Context(), subject, store.ImageExceptions{}); !errors.Is(err, store.ErrNotFound) || !c.isUncataloged(img, img.Scope) {
		c.t.Errorf("something of it is left in the store: %v", err)
	}
}

// holder returns the engine as a Holder and its harness as a Keeper. It skips the test if the engine is no Holder.
func (c *contract) holder(scanner Scanner) (backend.ExternalStateHolder, ExternalState) {
	c.t.Helper()
	holder, holds := c.Backend(scanner).(backend.ExternalStateHolder)
	keeper, keeps := c.Harness.(ExternalState)
	if holds != keeps {
		c.t.Fatalf("the engine is a Holder: %v; its harness is a Keeper: %v", holds, keeps)
	}
	if !holds {
		c.t.Skip("this engine keeps nothing elsewhere")
	}
	return holder, keeper
}

// release calls Release for a Scanner until nothing is left.
func (c *contract) release(scanner Scanner) {
	c.t.Helper()
	message := ""
	for range maxCalls {
		holder, _ := c.holder(scanner)
		wait, waitsFor, err := holder.Release(c.t.Context(), scanner.UID)
		c.must(err)
		if wait <= 0 {
			return
		}
		message = waitsFor
		c.Advance(wait)
		c.Work()
	}
	c.t.Fatalf("asked %d times, there is still something to undo: %s", maxCalls, message)
}

func (c *contract) wantHolds(scanner Scanner, want bool) {
	c.t.Helper()
	holder, _ := c.holder(scanner)
	if held, err := holder.Holds(c.t.Context(), scanner.UID); err != nil || held != want {
		c.t.Errorf("it keeps something for %s: %v, %v; want %v", scanner.UID, held, err, want)
	}
}

func (c *contract) releasesScanner() {
	_, keeper := c.holder(Shop)
	c.wantHolds(Shop, false)
	mine, theirs, own := c.image(Shop, Vulnerable), c.image(Blog, Vulnerable), c.image(Shop, Clean)
	for _, img := range []backend.Image{mine, theirs, own} {
		c.must(c.callUntilDone(c.catalog, img))
	}
	shared := c.subject(mine).PlatformDigest
	c.wantHolds(Shop, true)
	c.wantHolds(Blog, false)
	c.release(Shop)
	if kept := keeper.Manifests(); !slices.Equal(kept, []string{shared}) {
		c.t.Errorf("it keeps %q, want what the other Scanner has: %q", kept, shared)
	}
	c.must(c.Store().DeleteScanners(c.t.Context(), []string{Shop.UID}))
	c.wantHolds(Blog, true)
	c.Restart()
	c.release(Blog)
	c.wantHolds(Blog, false)
	if kept := keeper.Manifests(); len(kept) > 0 {
		c.t.Errorf("it keeps %q for nobody", kept)
	}
}

func (c *contract) releasesImage() {
	_, keeper := c.holder(Shop)
	kept, released := c.image(Shop, Vulnerable), c.image(Shop, Clean)
	for _, img := range []backend.Image{kept, released} {
		c.must(c.callUntilDone(c.catalog, img))
	}
	want := []string{c.subject(kept).PlatformDigest}
	c.must(c.Store().ReleaseImage(c.t.Context(), store.ScannerImage{Scanner: Shop.UID, Namespace: Shop.Namespace, Key: released.Key}, false))
	for range maxCalls {
		c.Advance(10 * time.Minute)
		c.Work()
	}
	if got := keeper.Manifests(); !slices.Equal(got, want) {
		c.t.Errorf("it keeps %q, want only what is in use: %q", got, want)
	}
	c.must(c.callUntilDone(c.catalog, kept))
	c.wantCatalogedOnce(kept)
}

// rescans: an image is cataloged again for the namespace that requests it, after a restart too. Others keep the catalog meanwhile.
func (c *contract) rescans() {
	mine, theirs := c.image(Shop, Vulnerable), c.image(Blog, Vulnerable)
	c.must(c.callUntilDone(c.catalog, mine))
	before := c.subject(mine)
	c.Advance(time.Hour)
	requested := c.Now()
	c.must(c.Store().RequestRescan(c.t.Context(), mine.OfScanner()))
	c.Restart()
	c.Work()
	if progress, err := c.call(c.catalog, theirs); err != nil || !progress.Done {
		c.t.Errorf("the other namespace has no catalog any more: %+v, %v", progress, err)
	}
	c.must(c.callUntilDone(c.catalog, mine))
	after, err := c.Store().Catalog(c.t.Context(), c.backendOf(mine).Engine(), mine.Key, mine.Scope)
	c.must(err)
	if after.CatalogedAt.Before(requested) || c.subject(mine) != before {
		c.t.Errorf("the catalog is of %s and of %v, want it made again after %s", after.CatalogedAt, c.subject(mine), requested)
	}
}

func (c *contract) describes() {
	engine := c.Backend(Shop)
	var never []string
	if partial, ok := engine.(backend.PartialCoverage); ok {
		never = partial.NotCovered()
	}
	c.Publish()
	img := c.image(Shop, Clean)
	c.scan(img)
	gaps := c.summary(img).NotCovered
	if held := len(gaps) - len(never); len(gaps) > v1alpha1.MaxNotCovered || held < 0 || !slices.Equal(gaps[held:], never) {
		c.t.Errorf("a report does not cover %q, want at most %d that end with those of any report: %q", gaps, v1alpha1.MaxNotCovered, never)
	}
	for _, gap := range gaps {
		if gap == "" || len(gap) > v1alpha1.MaxNotCoveredBytes {
			c.t.Errorf("%q does not fit into an ImageScan", gap)
		}
	}
	if reporter, ok := engine.(backend.DataReporter); ok {
		if problem := reporter.DataProblem(store.DataVersion{}); strings.ContainsAny(problem, "\n\r") {
			c.t.Errorf("its trouble %q is not one line", problem)
		}
	}
}
