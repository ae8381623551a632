package announce

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// testingT is the part of testing.T and rapid.T that stories need.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// faultyStore is a store with injected failures and hooks.
type faultyStore struct {
	*store.Store
	// broken is the number of next writes that fail, as if the process crashed before them.
	broken int
	// recordedOnly makes the write fail that follows one with All.
	recordedOnly bool
	// onPresent is called after Present. saved is called after a state was stored, marked after an announcement was recorded. Each may be nil.
	onPresent func()
	// onUpdate is called before UpdateAnnouncements; may be nil.
	onUpdate     func(store.UpdateExtent)
	onStateSaved func(state []byte)
	onMarked     func(store.Announcement)
}

var errBroken = errors.New("the store is gone")

func openFaultyStore(t testingT, path string, now func() time.Time) *faultyStore {
	t.Helper()
	s, err := storetest.Open(context.Background(), path, now, store.OpenSQLite)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	return &faultyStore{Store: s}
}

func (a *faultyStore) write() error {
	if a.broken > 0 {
		a.broken--
		return errBroken
	}
	return nil
}

// UpdateAnnouncements implements Store.
func (a *faultyStore) UpdateAnnouncements(ctx context.Context, scanner, receiver string, f store.ChangeFilter, extent store.UpdateExtent) error {
	if a.onUpdate != nil {
		a.onUpdate(extent)
	}
	return a.Store.UpdateAnnouncements(ctx, scanner, receiver, f, extent)
}

// Present implements Store.
func (a *faultyStore) Present(ctx context.Context, scanner, receiver string, f store.ChangeFilter, worst int) (store.Present, error) {
	present, err := a.Store.Present(ctx, scanner, receiver, f, worst)
	if a.onPresent != nil {
		a.onPresent()
	}
	return present, err
}

// SaveReceiverState implements Store.
func (a *faultyStore) SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error {
	if err := a.write(); err != nil {
		return err
	}
	err := a.Store.SaveReceiverState(ctx, scanner, receiver, state)
	if a.onStateSaved != nil && err == nil {
		a.onStateSaved(state)
	}
	return err
}

// BeginDelivery implements Store.
func (a *faultyStore) BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (int64, error) {
	if err := a.write(); err != nil {
		return 0, err
	}
	number, err := a.Store.BeginDelivery(ctx, scanner, receiver, state)
	if a.onStateSaved != nil && err == nil {
		a.onStateSaved(state)
	}
	return number, err
}

// RecordAnnouncement implements Store.
func (a *faultyStore) RecordAnnouncement(ctx context.Context, scanner, receiver string, announcement store.Announcement) error {
	if err := a.write(); err != nil {
		return err
	}
	err := a.Store.RecordAnnouncement(ctx, scanner, receiver, announcement)
	if a.onMarked != nil && err == nil {
		a.onMarked(announcement)
	}
	if a.recordedOnly && announcement.Snapshot != nil && err == nil {
		a.broken = 1
	}
	return err
}

// DecideAndRecord implements Store.
func (a *faultyStore) DecideAndRecord(ctx context.Context, scanner, receiver string, decide func(context.Context) (store.Announcement, error)) error {
	if err := a.write(); err != nil {
		return err
	}
	var announcement store.Announcement
	err := a.Store.DecideAndRecord(ctx, scanner, receiver, func(ctx context.Context) (_ store.Announcement, err error) {
		announcement, err = decide(ctx)
		return announcement, err
	})
	if a.onMarked != nil && err == nil {
		a.onMarked(announcement)
	}
	return err
}

// scenario is a receiver with its Scanner, store and notifier.
type scenario struct {
	t        testingT
	now      time.Time
	settings Settings
	coverage Coverage
	store    *faultyStore
	// findings of the image of each repository, as the Scanner's engine reports them.
	findings map[string][]finding.Finding
	// outcomes of the next attempts, in order. Further attempts are Delivered.
	outcomes []Outcome
	// sent is every message that was sent to the notifier, delivered or not. threads are the threads that they were sent to.
	sent    []Message
	threads []string
	last    DispatchResult
	// onSent is called when the notifier has a message, before it answers; may be nil.
	onSent func()
	// count is the number of deliveries that is kept outside the store.
	count int64
	// data is the version of the vulnerability data.
	data int
	// random returns the same numbers in every run.
	random *rand.ChaCha8
}

// scannerUID is the UID of the scenario's Scanner.
const scannerUID = "uid"

func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{
		t: t, now: noon, random: rand.NewChaCha8([32]byte{1}), findings: map[string][]finding.Finding{},
		settings: Settings{
			Namespace: "shop", Scanner: "default", Receiver: "team", Generation: 1,
			Address: ReceiverRef{Type: ReceiverTypeSlack, Namespace: "shop", SecretName: "slack", SecretKey: "url"},
			Filter:  store.ChangeFilter{MinSeverity: finding.High, Engine: grype}, GroupWait: 30 * time.Second, GroupInterval: 5 * time.Minute,
			FirstScan: FirstScanSummary, ReadMore: "kubectl -n shop get imagescans",
		},
		coverage: Coverage{DataSince: noon.Add(-time.Hour)},
	}
	s.store = openFaultyStore(t, filepath.Join(t.TempDir(), "store.db"), func() time.Time { return s.now })
	t.Cleanup(func() { s.must(s.store.Close()) })
	return s
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// afterBaseline returns a scenario with known images, after a silent baseline.
func afterBaseline(t *testing.T, repositories ...string) *scenario {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanSilent
	for _, repository := range repositories {
		s.image(repository, image.Scanned)
	}
	s.dispatch()
	s.pass(30 * time.Second)
	s.dispatch()
	if s.last.After.Baseline.Phase != BaselineDone || len(s.sent) != 0 {
		t.Fatalf("the baseline is %q with %d messages, want it done silently", s.last.After.Baseline.Phase, len(s.sent))
	}
	return s
}

// image sets the state of the only image of a repository. A scanned image gets a report.
func (s *scenario) image(repository string, state image.State) {
	s.t.Helper()
	img := Image{Key: "key of " + repository, Repositories: []string{repository}, State: state, Current: true}
	if state == image.Failed {
		img.Reason = "Broken"
	}
	s.removeFromCoverage(repository)
	s.coverage.Images = append(slices.Clone(s.coverage.Images), img)
	s.setUsed(repository)
	if state == image.Scanned {
		s.report(repository)
	}
}

// setUsed records that the Scanner's workloads run the image of a repository.
func (s *scenario) setUsed(repository string, workloads ...store.Workload) {
	s.t.Helper()
	ctx, engine := context.Background(), s.settings.Filter.Engine
	_, err := s.store.Catalog(ctx, engine, keyOf(repository), store.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		err = s.store.SaveCatalog(ctx, store.Catalog{Engine: engine, Key: keyOf(repository), PlatformDigest: digestOf(repository), CatalogedAt: s.now}, nil)
	}
	s.must(err)
	if len(workloads) == 0 {
		workloads = []store.Workload{{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: repository, Reference: repository + ":1.0"}}
	}
	s.must(s.store.SetUsage(ctx, store.ImageUsage{
		Scanner: scannerUID, Namespace: "shop", Key: keyOf(repository), Engine: engine, Workloads: workloads,
	}))
}

// report saves the findings of the image of a repository, with the current engine and data.
func (s *scenario) report(repository string) {
	s.t.Helper()
	_, err := s.store.SaveReport(context.Background(), store.Report{
		Subject:     store.Subject{PlatformDigest: digestOf(repository), Engine: s.settings.Filter.Engine},
		DataVersion: fmt.Sprintf("data %d", s.data), MatchedAt: s.now, Findings: s.findings[repository],
	}, "")
	s.must(err)
}

// external saves a report of the source trivy-ci about the image of a repository.
func (s *scenario) external(repository string, version int64, ids ...string) {
	s.t.Helper()
	var found []finding.Finding
	for _, id := range ids {
		found = append(found, npmFinding(id, finding.Critical))
	}
	_, err := s.store.SaveExternalReport(context.Background(), store.ExternalReport{
		ExternalKey: store.ExternalKey{Namespace: "shop", Digest: keyOf(repository).Digest, Source: "trivy-ci"},
		Version:     version, Time: s.now, Tool: "trivy", Findings: found, Text: strings.NewReader("{}"),
	}, func(*store.ExternalState) error { return nil })
	s.must(err)
}

func npmFinding(id string, severity finding.Severity) finding.Finding {
	return finding.Finding{ID: id, Severity: severity, Package: finding.Package{Name: "npm-lib", Version: "1", Type: "npm"}}
}

// replaceImage rolls out a scanned image in the place of the images of a repository.
func (s *scenario) replaceImage(repository, next string) {
	s.t.Helper()
	s.setUsed(next, store.Workload{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: repository, Reference: repository + ":2.0"})
	for _, i := range s.coverage.Images {
		if i.Repositories[0] == repository {
			s.must(s.store.SetUsage(context.Background(), store.ImageUsage{
				Scanner: scannerUID, Namespace: "shop", Key: keyOf(strings.TrimPrefix(i.Key, "key of ")), Engine: grype,
			}))
		}
	}
	s.report(next)
	s.removeFromCoverage(repository)
	s.coverage.Images = append(s.coverage.Images, Image{Key: next, Repositories: []string{repository}, State: image.Scanned, Current: true})
}

func digestOf(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

func keyOf(repository string) image.Key {
	return image.Key{Digest: digestOf("index of " + repository), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

// markPartlyCovered marks the image of a repository as having content that the engine does not cover.
func (s *scenario) markPartlyCovered(repository string) {
	for i := range s.coverage.Images {
		if s.coverage.Images[i].Repositories[0] == repository {
			s.coverage.Images[i].Gap = evidence.AnyPackages
		}
	}
}

// release removes the image of a repository.
func (s *scenario) release(repository string) {
	s.removeFromCoverage(repository)
	s.must(s.store.ReleaseImage(context.Background(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: keyOf(repository)}, false))
}

// removeFromCoverage removes the image of a repository from the coverage.
func (s *scenario) removeFromCoverage(repository string) {
	s.coverage.Images = slices.DeleteFunc(slices.Clone(s.coverage.Images), func(i Image) bool { return i.Repositories[0] == repository })
}

// addFindings adds n findings to the scanned image of a repository, with ascending IDs that begin with from. They replace those with the same IDs.
func (s *scenario) addFindings(repository string, severity finding.Severity, from, n int, changes ...func(*finding.Finding)) {
	s.t.Helper()
	var found []finding.Finding
	for i := range n {
		f := finding.Finding{
			ID: fmt.Sprintf("CVE-2026-%04d", from+i), Severity: severity, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"},
			FixState: finding.FixStateFixed, FixVersions: []string{"2"},
		}
		for _, change := range changes {
			change(&f)
		}
		found = append(found, f)
	}
	replaced := map[string]bool{}
	for _, f := range found {
		replaced[f.ID] = true
	}
	kept := slices.DeleteFunc(s.findings[repository], func(f finding.Finding) bool { return replaced[f.ID] })
	s.findings[repository] = append(kept, found...)
	s.image(repository, image.Scanned)
}

// removeFindings removes all findings from the image of a repository.
func (s *scenario) removeFindings(repository string) {
	s.t.Helper()
	delete(s.findings, repository)
	s.report(repository)
}

// state returns the receiver's stored state.
func (s *scenario) state() State {
	s.t.Helper()
	state, err := ParseState(s.encoded())
	s.must(err)
	return state
}

func (s *scenario) encoded() []byte {
	s.t.Helper()
	encoded, err := s.store.ReceiverState(context.Background(), scannerUID, s.settings.Receiver)
	s.must(err)
	return encoded
}

// notAnnounced returns the number of findings that were not announced.
func (s *scenario) notAnnounced() int {
	s.t.Helper()
	_, total, err := s.store.PendingChanges(context.Background(), scannerUID, s.settings.Receiver, s.settings.Filter, 0)
	s.must(err)
	return total
}

// isKnown reports whether the receiver knows a repository.
func (s *scenario) isKnown(repository string) bool {
	s.t.Helper()
	known, err := s.store.KnownRepositories(context.Background(), scannerUID, s.settings.Receiver)
	s.must(err)
	return slices.Contains(known, repository)
}

func (s *scenario) pass(d time.Duration) { s.now = s.now.Add(d) }

// Send implements Sender.
func (s *scenario) Send(_ context.Context, d Delivery) Outcome {
	s.t.Helper()
	if state := s.state(); state.Outbox == nil || state.Outbox.Message.ID != d.Message.ID {
		s.t.Errorf("message %s is sent before it is stored", d.Message.ID)
	}
	if d.Receiver != s.settings.Address {
		s.t.Errorf("sent to %+v, want %+v", d.Receiver, s.settings.Address)
	}
	s.sent, s.threads = append(s.sent, d.Message), append(s.threads, d.Thread)
	if s.onSent != nil {
		s.onSent()
	}
	if len(s.outcomes) == 0 && s.settings.Address.hasThreads() {
		return Outcome{Result: Delivered, Timestamp: fmt.Sprintf("%d.1", len(s.sent)), InThread: d.Thread != ""}
	}
	if len(s.outcomes) == 0 {
		return Outcome{Result: Delivered}
	}
	outcome := s.outcomes[0]
	s.outcomes = s.outcomes[1:]
	return outcome
}

// recordNumber saves the number of a delivery outside the store.
func (s *scenario) recordNumber(ctx context.Context, number int64) {
	s.t.Helper()
	if stored, err := s.store.Deliveries(ctx); err != nil || stored != number {
		s.t.Errorf("delivery %d is counted while the store counts %d (%v)", number, stored, err)
	}
	s.count = number
}

// tryDispatch calls Dispatcher.Dispatch once, as a new process would: all its knowledge is in the store.
func (s *scenario) tryDispatch() error {
	dispatcher := Dispatcher{Store: s.store, Sender: s, Random: s.random, Now: func() time.Time { return s.now }, RecordNumber: s.recordNumber}
	progress, err := dispatcher.Dispatch(context.Background(), scannerUID, s.settings, s.coverage)
	if err == nil {
		s.last = progress
	}
	return err
}

// dispatch calls Dispatcher.Dispatch and returns the messages that were sent to the notifier.
func (s *scenario) dispatch() []Message {
	s.t.Helper()
	before := len(s.sent)
	if err := s.tryDispatch(); err != nil {
		s.t.Fatalf("visit: %v", err)
	}
	return s.sent[before:]
}

// dispatchNext lets time pass until the next visit is due, and visits.
func (s *scenario) dispatchNext() []Message {
	s.t.Helper()
	if s.last.Next.IsZero() {
		s.t.Fatalf("nothing is waited for")
	}
	s.now = s.last.Next
	return s.dispatch()
}

// dispatchUntilIdle visits until no further visit is due.
func (s *scenario) dispatchUntilIdle() {
	s.t.Helper()
	for s.dispatch(); !s.last.Next.IsZero(); {
		s.dispatchNext()
	}
}

// wantNext checks when the next visit is due.
func (s *scenario) wantNext(d time.Duration) {
	s.t.Helper()
	if want := s.now.Add(d); !s.last.Next.Equal(want) {
		s.t.Errorf("next visit at %s, want in %s at %s", s.last.Next.Format(time.TimeOnly), d, want.Format(time.TimeOnly))
	}
}

// wantIdle checks that no further visit is due and the outbox is empty.
func (s *scenario) wantIdle() {
	s.t.Helper()
	if !s.last.Next.IsZero() || s.last.After.Outbox != nil {
		s.t.Errorf("next visit at %s with outbox %v, want nothing to wait for", s.last.Next.Format(time.TimeOnly), s.last.After.Outbox)
	}
}

// single returns the single message that is expected.
func single(t *testing.T, messages []Message) Message {
	t.Helper()
	if len(messages) != 1 {
		t.Fatalf("%d messages, want 1", len(messages))
	}
	return messages[0]
}

func none(t *testing.T, messages []Message, why string) {
	t.Helper()
	if len(messages) != 0 {
		t.Fatalf("%d messages, want none: %s", len(messages), why)
	}
}

// TestRegressedByAnotherID: a finding that comes back by another ID, while the message that it is fixed is in the outbox, is announced as
// regressed.
func TestRegressedByAnotherID(t *testing.T) {
	const advisory = "GHSA-aaaa-bbbb-cccc"
	s := newScenario(t)
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeRegressed, diff.ChangeFixed}
	s.addFindings("web", finding.Critical, 1, 1, func(f *finding.Finding) { f.ID = advisory })
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	for range 2 { // versions of the data
		s.data++
		s.removeFindings("web")
	}
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Sections[0].Items[0].Change != diff.ChangeFixed {
		t.Fatalf("message %+v, want that one is fixed", d)
	}
	s.addFindings("web", finding.Critical, 1, 1, func(f *finding.Finding) { f.Aliases = []string{advisory} })
	sent := len(s.sent)
	s.dispatchUntilIdle()
	last := s.sent[len(s.sent)-1]
	if len(s.sent) != sent+2 || last.Sections[0].Items[0].ID != "CVE-2026-0001" || last.Sections[0].Items[0].Change != diff.ChangeRegressed {
		t.Errorf("messages %+v, want that it is fixed, once more, and that it is back", s.sent[sent:])
	}
}

// TestRolloutDuringDelivery: an image that is replaced while a message is being sent fixes nothing as long as the next one has no result,
// though another image of its repository has one.
func TestRolloutDuringDelivery(t *testing.T) {
	s := newScenario(t)
	worker := store.Workload{Namespace: "shop", Kind: "Deployment", Name: "worker", Container: "c", Repository: "web", Reference: "web:2.0"}
	s.setUsed("web of the worker", worker)
	s.report("web of the worker")
	s.addFindings("web", finding.Critical, 1, 1)
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	s.addFindings("db", finding.Critical, 2, 1)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}}
	s.dispatch()
	single(t, s.dispatchNext())
	s.findings["next web"] = s.findings["web"]
	app := worker
	app.Name = "app"
	s.onSent = func() {
		s.must(s.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: keyOf("web")}, false))
		s.setUsed("next web", app)
	}
	s.dispatchNext()
	s.onSent = nil
	s.report("next web")
	sent := len(s.sent)
	s.dispatchUntilIdle()
	none(t, s.sent[sent:], "nothing was fixed, and nothing came back")
}
