package notify

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// slackModel is the notifier and Slack behind it, as far as the manager's promises depend on them.
type slackModel struct {
	*story
	rt *rapid.T
	// remembered are the ids that the notifier knows to be delivered; a restart of it forgets them.
	remembered map[string]bool
	// said is how often Slack was told of a finding, by different messages.
	said map[store.AnnouncementKey]int
	// messages by id that Slack has taken, and whether the manager may not know.
	messages map[string]bool
	doubtful map[store.AnnouncementKey]bool
	// engines are what each of two engines finds.
	engines map[string]map[store.AnnouncementKey]store.News
	// calm makes everything work.
	calm bool
}

// Send implements Sender with any fate that a message can have.
func (m *slackModel) Send(ctx context.Context, d Delivery) Outcome {
	m.story.Send(ctx, d)
	state, err := ParseState(m.ledger.state)
	if err != nil || state.Outbox == nil {
		m.rt.Fatalf("a message is sent that is not stored: %v", err)
	}
	fate := "delivered"
	if !m.calm {
		fate = rapid.SampledFrom([]string{"delivered", "delivered", "temporary", "limited", "permanent", "lost before", "lost after", "crash after"}).Draw(m.rt, "fate")
	}
	if m.remembered[d.Digest.ID] {
		return Outcome{Result: Delivered}
	}
	switch fate {
	case "temporary":
		return Outcome{Result: Temporary, Reason: ReasonReceiverFailed}
	case "limited":
		return Outcome{Result: RateLimited, RetryAfter: time.Minute}
	case "permanent":
		return Outcome{Result: Permanent, Reason: ReasonReceiverRefused}
	case "lost before":
		return Outcome{Result: UnknownOutcome}
	}
	keys := m.keysOf(state.Outbox)
	m.take(d.Digest.ID, keys)
	switch fate {
	case "lost after":
		m.doubt(keys)
		return Outcome{Result: UnknownOutcome}
	case "crash after":
		// Slack has it and the notifier knows, but the manager dies before it can write that down.
		m.ledger.broken = 1
	}
	m.remembered[d.Digest.ID] = true
	return Outcome{Result: Delivered}
}

// keysOf is what a message says, also that which only the store knows.
func (m *slackModel) keysOf(outbox *Outbox) []store.AnnouncementKey {
	return append(slices.Clone(outbox.Keys), m.ledger.recorded[outbox.Digest.ID]...)
}

func (m *slackModel) take(id string, keys []store.AnnouncementKey) {
	if m.messages[id] {
		m.doubt(keys)
		return
	}
	m.messages[id] = true
	for _, key := range keys {
		m.said[key]++
	}
}

func (m *slackModel) doubt(keys []store.AnnouncementKey) {
	for _, key := range keys {
		m.doubtful[key] = true
	}
}

// courierVisit is a visit of a fresh process that may die on the way.
func (m *slackModel) courierVisit() {
	courier := Courier{Store: m.ledger, Sender: m, Planner: Planner{Random: m.random}, Now: func() time.Time { return m.now }}
	progress, err := courier.Visit(context.Background(), "uid", m.settings, m.coverage)
	if err == nil {
		m.last = progress
	} else {
		m.last.Next = m.now.Add(time.Second)
	}
	m.ledger.broken = 0
}

// TestEverythingIsToldOnce: whatever is found, whatever becomes of messages, and wherever the manager dies,
// every finding that stays is told in the end, and told once unless an answer was lost.
func TestEverythingIsToldOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &slackModel{
			story: newStory(t), rt: t, remembered: map[string]bool{}, said: map[store.AnnouncementKey]int{},
			messages: map[string]bool{}, doubtful: map[store.AnnouncementKey]bool{},
		}
		m.engines = map[string]map[store.AnnouncementKey]store.News{grype: m.ledger.present, clair: {}}
		m.settings.Filter.Engine = grype
		m.settings.FirstScan = rapid.SampledFrom([]FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll}).Draw(t, "firstScan")
		m.settings.StoreRenewed = rapid.Bool().Draw(t, "store renewed")
		found := 0
		repository := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
		t.Repeat(map[string]func(*rapid.T){
			"find": func(t *rapid.T) {
				n := rapid.IntRange(1, 15).Draw(t, "findings")
				m.find(repository.Draw(t, "repository"), rapid.SampledFrom([]finding.Severity{finding.Critical, finding.High, finding.Low}).Draw(t, "severity"), found, n)
				found += n
			},
			"image": func(t *rapid.T) {
				m.image(repository.Draw(t, "repository"), rapid.SampledFrom([]ImageState{ImagePending, ImageFailed, ImageScanned}).Draw(t, "state"))
			},
			"engine":        func(t *rapid.T) { m.changeEngine(rapid.SampledFrom([]string{grype, clair}).Draw(t, "engine")) },
			"fixed":         func(t *rapid.T) { m.fix(repository.Draw(t, "repository")) },
			"a little time": func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second) },
			"much time":     func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(0, 30).Draw(t, "hours")) * time.Hour) },
			"clock put back": func(t *rapid.T) {
				m.putBack(time.Duration(rapid.IntRange(1, 30*3600).Draw(t, "seconds")) * time.Second)
			},
			"visit":             func(*rapid.T) { m.courierVisit() },
			"manager crashes":   func(t *rapid.T) { m.ledger.broken = rapid.IntRange(1, 2).Draw(t, "writes lost"); m.courierVisit() },
			"notifier restarts": func(*rapid.T) { m.restartNotifier() },
			"Scanner changes":   func(*rapid.T) { m.settings.Generation++ },
			"":                  func(t *rapid.T) { m.assertNotTwice(t) },
		})
		m.settleDown(t)
	})
}

// putBack lets the clock of the manager jump. No wait becomes longer by it than the longest there is: a visit that is
// asked for later than that would be a message that comes hours late.
func (m *slackModel) putBack(d time.Duration) {
	m.pass(-d)
	m.courierVisit()
	if wait := m.last.Next.Sub(m.now); wait > maxRetryAfter {
		m.rt.Fatalf("after the clock went back by %s the next visit is in %s, want at most %s", d, wait, maxRetryAfter)
	}
}

// changeEngine gives the Scanner an engine, which finds what it had found when the Scanner had it last.
func (m *slackModel) changeEngine(engine string) {
	m.settings.Filter.Engine, m.ledger.present = engine, m.engines[engine]
}

// restartNotifier forgets what was delivered. If the manager has not heard of a delivery, its answer is lost for good.
func (m *slackModel) restartNotifier() {
	if state, err := ParseState(m.ledger.state); err == nil && state.Outbox != nil && m.remembered[state.Outbox.Digest.ID] {
		m.doubt(m.keysOf(state.Outbox))
	}
	clear(m.remembered)
}

// fix removes all findings of a repository.
func (m *slackModel) fix(repository string) {
	for key := range m.ledger.present {
		if key.Repository == repository {
			delete(m.ledger.present, key)
		}
	}
}

func (m *slackModel) assertNotTwice(t *rapid.T) {
	for key, n := range m.said {
		if n > 1 && !m.doubtful[key] {
			t.Fatalf("%v was told %d times though no answer was lost", key, n)
		}
	}
	for _, key := range m.ledger.recorded[""] {
		if m.said[key] > 0 {
			t.Fatalf("%v was told though a silent baseline passed it over", key)
		}
	}
}

// assertEngine wants the receiver to have followed the Scanner to its engine.
func (m *slackModel) assertEngine(t *rapid.T) {
	if state := m.last.After; state.Engine != m.settings.Filter.Engine || state.Baseline.EngineBefore != "" {
		t.Fatalf("at rest the receiver is told of %q, after %q, want %q", state.Engine, state.Baseline.EngineBefore, m.settings.Filter.Engine)
	}
}

// settleDown lets everything work until nothing is waited for, and looks at what was told.
func (m *slackModel) settleDown(t *rapid.T) {
	m.calm = true
	m.courierVisit()
	for i := 0; !m.last.Next.IsZero(); i++ {
		if i > 1000 {
			t.Fatal("the courier never comes to rest")
		}
		m.now = m.last.Next
		m.courierVisit()
	}
	m.assertNotTwice(t)
	m.assertEngine(t)
	for key, n := range m.ledger.present {
		told, passed := m.said[key] > 0, m.ledger.told[key] > 0
		silent := m.settings.FirstScan == FirstScanSilent && !m.last.After.Baseline.Renewed
		switch relevant := n.Finding.Severity >= finding.High; {
		case relevant && !passed:
			t.Fatalf("%v was never told", key)
		case relevant && !told && !silent:
			t.Fatalf("%v counts as told, but Slack never heard of it", key)
		case !relevant && (told || passed):
			t.Fatalf("%v is below the threshold and counts as told", key)
		}
	}
	if state := m.last.After; state.Pending != 0 || state.Outbox != nil {
		t.Fatal(fmt.Sprintf("at rest with %d findings pending and outbox %v", state.Pending, state.Outbox))
	}
}
