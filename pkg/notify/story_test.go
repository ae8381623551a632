package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// testing.T and rapid.T, as far as a story needs them.
type teller interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// ledger is a store of one receiver, in memory: what is present, what was told.
type ledger struct {
	store.Announcements // what a courier does not call
	present             map[store.AnnouncementKey]store.News
	told                map[store.AnnouncementKey]int
	heard               map[string]bool
	state               []byte
	// broken makes the next writes fail, as a crash before them would.
	broken int
	// recorded is by which message what was told by All.
	recorded map[string][]store.AnnouncementKey
	// looked is called when everything was looked at.
	looked func()
	// recordedOnly makes every write fail that comes after one with All.
	recordedOnly bool
}

var errBroken = errors.New("the store is gone")

func newLedger() *ledger {
	return &ledger{present: map[store.AnnouncementKey]store.News{}, told: map[store.AnnouncementKey]int{}, heard: map[string]bool{}, recorded: map[string][]store.AnnouncementKey{}}
}

func (l *ledger) write() error {
	if l.broken > 0 {
		l.broken--
		return errBroken
	}
	return nil
}

// News implements store.Announcements.
func (l *ledger) News(_ context.Context, _, _ string, f store.NewsFilter, limit int) ([]store.News, int, error) {
	var news []store.News
	for key, n := range l.present {
		passes := n.Finding.KnownExploited || n.Finding.Severity >= f.MinSeverity && (!f.OnlyFixable || n.Finding.Fixable())
		if passes && l.told[key] == 0 {
			news = append(news, n)
		}
	}
	slices.SortFunc(news, func(a, b store.News) int {
		if c := strings.Compare(a.Repository, b.Repository); c != 0 {
			return c
		}
		return finding.Worse(a.Finding, b.Finding)
	})
	total := len(news)
	if limit > 0 {
		news = news[:min(limit, total)]
	}
	return news, total, nil
}

// Present implements store.Announcements.
func (l *ledger) Present(ctx context.Context, scanner, receiver string, f store.NewsFilter, worst int) (store.Present, error) {
	news, total, err := l.News(ctx, scanner, receiver, f, 0)
	p := store.Present{News: total, Moment: l.moment()}
	for _, n := range news {
		p.Repositories = append(p.Repositories, n.Repository)
	}
	slices.SortFunc(news, worseNews)
	p.Worst = news[:min(worst, total)]
	for _, n := range l.present {
		p.Counts = sum(p.Counts, countsOf(n.Finding))
	}
	if l.looked != nil {
		l.looked()
	}
	return p, err
}

func (l *ledger) moment() string {
	var all []string
	for key, n := range l.present {
		all = append(all, fmt.Sprintf("%q %d", key, n.Finding.Severity))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// KnownRepositories implements store.Announcements.
func (l *ledger) KnownRepositories(context.Context, string, string) ([]string, error) {
	return slices.Collect(maps.Keys(l.heard)), nil
}

// ReceiverState implements store.Announcements.
func (l *ledger) ReceiverState(context.Context, string, string) ([]byte, error) { return l.state, nil }

// SaveReceiverState implements store.Announcements.
func (l *ledger) SaveReceiverState(_ context.Context, _, _ string, state []byte) error {
	if err := l.write(); err != nil {
		return err
	}
	l.state = state
	return nil
}

// MarkAnnounced implements store.Announcements.
func (l *ledger) MarkAnnounced(ctx context.Context, scanner, receiver string, said store.Announced) error {
	if err := l.write(); err != nil {
		return err
	}
	if said.All != nil && said.All.Moment != l.moment() {
		return fmt.Errorf("mark announced: %w", store.ErrChanged)
	}
	if said.Retract != "" {
		for _, key := range l.recorded[said.Retract] {
			delete(l.told, key)
		}
	}
	if said.ForgetRepositories {
		clear(l.heard)
	}
	for _, key := range said.Keys {
		l.heard[key.Repository] = true
	}
	if said.All != nil {
		news, _, err := l.News(ctx, scanner, receiver, said.All.Filter, 0)
		if err != nil {
			return err
		}
		l.recorded[said.DigestID] = keysOf(news)
		if l.recordedOnly {
			l.broken = 1
		}
		said.Keys = append(said.Keys, keysOf(news)...)
	}
	for _, key := range said.Keys {
		l.told[key]++
	}
	for _, repository := range said.Repositories {
		l.heard[repository] = true
	}
	l.state = said.State
	return nil
}

// story is a receiver and the world around it.
type story struct {
	t        teller
	now      time.Time
	settings Settings
	coverage Coverage
	ledger   *ledger
	// outcomes that the notifier will answer with; Delivered when there is none left.
	outcomes []Outcome
	// sent is every message handed to the notifier, delivered or not.
	sent []Digest
	last Progress
	// taken is called when a message has been taken, before the courier hears of it.
	taken func()
	// random is the same in every run.
	random *rand.ChaCha8
}

func newStory(t teller) *story {
	return &story{
		t: t, now: noon, ledger: newLedger(), random: rand.NewChaCha8([32]byte{1}),
		settings: Settings{
			Namespace: "shop", Scanner: "default", Receiver: "team", Generation: 1,
			Address: ReceiverRef{Type: ReceiverTypeSlack, Namespace: "shop", SecretName: "slack", SecretKey: "url"},
			Filter:  store.NewsFilter{MinSeverity: finding.High}, GroupWait: 30 * time.Second, GroupInterval: 5 * time.Minute,
			FirstScan: FirstScanSummary, ReadMore: "kubectl -n shop get imagescans",
		},
		coverage: Coverage{Known: true, DataSince: noon.Add(-time.Hour)},
	}
}

// begun is a story whose baseline was silent and is over, with images that are known.
func begun(t teller, repositories ...string) *story {
	s := newStory(t)
	s.settings.FirstScan = FirstScanSilent
	for _, repository := range repositories {
		s.image(repository, ImageScanned)
	}
	s.visit()
	s.pass(30 * time.Second)
	s.visit()
	if s.last.After.Baseline.Phase != BaselineDone || len(s.sent) != 0 {
		t.Fatalf("the baseline is %q with %d messages, want it done silently", s.last.After.Baseline.Phase, len(s.sent))
	}
	return s
}

// image sets the state of the one image of a repository.
func (s *story) image(repository string, state ImageState) {
	img := Image{Key: "key of " + repository, Repositories: []string{repository}, State: state}
	if state == ImageFailed {
		img.Reason = "Broken"
	}
	s.gone(repository)
	s.coverage.Images = append(slices.Clone(s.coverage.Images), img)
}

// partly has the image of a repository hold what the engine does not cover.
func (s *story) partly(repository string) {
	for i := range s.coverage.Images {
		s.coverage.Images[i].Partly = s.coverage.Images[i].Partly || s.coverage.Images[i].Repositories[0] == repository
	}
}

// gone removes the image of a repository.
func (s *story) gone(repository string) {
	s.coverage.Images = slices.DeleteFunc(slices.Clone(s.coverage.Images), func(i Image) bool { return i.Repositories[0] == repository })
}

// find puts findings into an image that is scanned, with ids from a number on.
func (s *story) find(repository string, severity finding.Severity, from, n int) {
	s.image(repository, ImageScanned)
	for i := range n {
		f := finding.Finding{
			ID: fmt.Sprintf("CVE-2026-%04d", from+i), Severity: severity, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"},
			FixState: finding.FixStateFixed, FixVersions: []string{"2"},
		}
		s.ledger.present[store.AnnouncementKey{Repository: repository, ID: f.ID, Package: "lib"}] = store.News{
			Repository: repository, Finding: f, FirstSeen: s.now,
			Workloads: []store.Workload{{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: repository, Reference: repository + ":1.0"}},
		}
	}
}

func (s *story) pass(d time.Duration) { s.now = s.now.Add(d) }

// Send implements Sender.
func (s *story) Send(_ context.Context, d Delivery) Outcome {
	s.t.Helper()
	state, err := ParseState(s.ledger.state)
	if err != nil || state.Outbox == nil || state.Outbox.Digest.ID != d.Digest.ID {
		s.t.Errorf("message %s is sent before it is stored", d.Digest.ID)
	}
	if d.Receiver != s.settings.Address {
		s.t.Errorf("sent to %+v, want %+v", d.Receiver, s.settings.Address)
	}
	s.sent = append(s.sent, d.Digest)
	if s.taken != nil {
		s.taken()
	}
	if len(s.outcomes) == 0 {
		return Outcome{Result: Delivered}
	}
	outcome := s.outcomes[0]
	s.outcomes = s.outcomes[1:]
	return outcome
}

// tryVisit lets the courier work once, as a fresh process would: all that it knows is in the ledger.
func (s *story) tryVisit() error {
	courier := Courier{Store: storeOf(s.ledger), Sender: s, Planner: Planner{Random: s.random}, Now: func() time.Time { return s.now }}
	progress, err := courier.Visit(context.Background(), "uid", s.settings, s.coverage)
	if err == nil {
		s.last = progress
	}
	return err
}

// visit returns the messages that were handed to the notifier.
func (s *story) visit() []Digest {
	s.t.Helper()
	before := len(s.sent)
	if err := s.tryVisit(); err != nil {
		s.t.Fatalf("visit: %v", err)
	}
	return s.sent[before:]
}

// next passes the time until the next visit that was asked for, and visits.
func (s *story) next() []Digest {
	s.t.Helper()
	if s.last.Next.IsZero() {
		s.t.Fatalf("nothing is waited for")
	}
	s.now = s.last.Next
	return s.visit()
}

// wantNext says when the next visit was asked for.
func (s *story) wantNext(d time.Duration) {
	s.t.Helper()
	if want := s.now.Add(d); !s.last.Next.Equal(want) {
		s.t.Errorf("next visit at %s, want in %s at %s", s.last.Next.Format(time.TimeOnly), d, want.Format(time.TimeOnly))
	}
}

// wantIdle says that nothing is waited for.
func (s *story) wantIdle() {
	s.t.Helper()
	if !s.last.Next.IsZero() || s.last.After.Outbox != nil {
		s.t.Errorf("next visit at %s with outbox %v, want nothing to wait for", s.last.Next.Format(time.TimeOnly), s.last.After.Outbox)
	}
}

// storeOf is a ledger as the courier's store.
func storeOf(l *ledger) store.Announcements { return l }

// only returns the one message that there must be.
func only(t *testing.T, messages []Digest) Digest {
	t.Helper()
	if len(messages) != 1 {
		t.Fatalf("%d messages, want 1", len(messages))
	}
	return messages[0]
}

func none(t *testing.T, messages []Digest, why string) {
	t.Helper()
	if len(messages) != 0 {
		t.Fatalf("%d messages, want none: %s", len(messages), why)
	}
}
