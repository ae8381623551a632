package announce

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// All runs draw the same histories, so that a failure is caused by a change of the code. "make explore" draws others.
func init() { _ = flag.Set("rapid.seed", "1") }

// simulation is a world with a receiver, and the notifier between them.
type simulation struct {
	*world
	audience *receiverModel
	// remembered are the outcomes of the messages that the notifier has delivered, by ID. A restart of the notifier clears it.
	remembered map[string]Outcome
	// threads are the threads that the receiver has, by timestamp, with the topics that their messages announced.
	threads map[string]map[topic]bool
	last    DispatchResult
	// calm lets every attempt succeed. silent leaves every attempt without an answer.
	calm, silent bool
}

// attemptResults are the possible results of an attempt, most of them failures.
var attemptResults = []string{"delivered", "delivered", "delivered", "temporary", "limited", "permanent", "lost before", "lost after", "crash after"}

// Send implements Sender with a drawn result.
func (l *simulation) Send(_ context.Context, d Delivery) Outcome {
	id := d.Message.ID
	outcome := l.deliver(d, id)
	switch outcome.Result {
	case UnknownOutcome:
		l.audience.unanswered++
		l.audience.messages[id].unanswered++
	case Delivered:
		l.audience.unanswered++
		l.audience.messages[id].unanswered++
		if l.archive.broken == 0 {
			l.audience.unanswered = 0
		}
	}
	return outcome
}

// deliver draws the result of an attempt and applies it to the receiver.
func (l *simulation) deliver(d Delivery, id string) Outcome {
	if l.audience.messages[id] == nil {
		l.rt.Fatalf("message %s is sent before it is stored", id)
	}
	encoded, err := json.Marshal(d)
	if err != nil || len(encoded) > MaxDeliveryBytes/4 {
		l.rt.Fatalf("a message of %d bytes, error %v; want at most %d", len(encoded), err, MaxDeliveryBytes/4)
	}
	fate := "delivered"
	if !l.calm {
		fate = rapid.SampledFrom(attemptResults).Draw(l.rt, "fate")
	}
	if l.silent {
		fate = rapid.SampledFrom([]string{"lost before", "lost after"}).Draw(l.rt, "loss")
	}
	l.checkThread(d)
	if outcome, remembered := l.remembered[id]; remembered {
		return outcome
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
	l.audience.accept(id, d.Thread != "")
	outcome := l.post(d)
	switch fate {
	case "lost after":
		l.audience.addUncertainDelivery(id)
		return Outcome{Result: UnknownOutcome}
	case "crash after":
		// The receiver and the notifier have the message, but the manager crashes before it can record the delivery.
		l.archive.broken = 1
	}
	l.remembered[id] = outcome
	return outcome
}

// checkThread fails the test if a message is a reply and has what belongs to the channel, or findings that were not announced in the thread.
func (l *simulation) checkThread(d Delivery) {
	m := l.audience.messages[d.Message.ID]
	switch {
	case d.Thread == "":
		return
	case !d.Receiver.hasThreads() || l.threads[d.Thread] == nil:
		l.rt.Fatalf("message %s is a reply in %q of %+v, which has no such thread", d.Message.ID, d.Thread, d.Receiver)
	case len(m.announced) == 0 || len(d.Message.Notices)+len(d.Message.NewImages) > 0:
		l.rt.Fatalf("reply %s has %d findings and %d notices, want findings only", d.Message.ID, len(m.announced), len(d.Message.Notices))
	}
	for _, s := range m.announced {
		if !isReply(s.Change) || !l.threads[d.Thread][topicOf(s)] {
			l.rt.Fatalf("%v is announced as %s in thread %s, which is about %v", topicOf(s), s.Change, d.Thread, l.threads[d.Thread])
		}
	}
}

// post returns the outcome of a message that the receiver accepts. A thread that was deleted meanwhile goes on with the message.
func (l *simulation) post(d Delivery) Outcome {
	if !d.Receiver.hasThreads() {
		return Outcome{Result: Delivered}
	}
	outcome := Outcome{Result: Delivered, Timestamp: fmt.Sprintf("%d.%s", len(l.threads), d.Receiver.Channel)}
	deleted := d.Thread != "" && !l.calm && rapid.IntRange(0, 3).Draw(l.rt, "deleted thread") == 0
	outcome.InThread = d.Thread != "" && !deleted
	topics := map[topic]bool{}
	m := l.audience.messages[d.Message.ID]
	for _, s := range m.announced {
		topics[topicOf(s)] = true
	}
	maps.Copy(topics, l.threads[d.Thread])
	for t := range m.covers {
		topics[t] = true
	}
	l.threads[outcome.Timestamp] = topics
	return outcome
}

// addresses are those of a receiver that becomes an app, a webhook, or gets another channel.
var addresses = []ReceiverRef{
	{Type: ReceiverTypeSlack}, {Type: ReceiverTypeSlackApp, Channel: "#a"}, {Type: ReceiverTypeSlackApp, Channel: "#b"}, {Type: ReceiverTypeSlackApp, Channel: "#a"},
}

// dispatch calls Dispatcher.Dispatch once, in a process that may crash. The next process opens the store again.
func (l *simulation) dispatch() {
	l.settings.Filter.Exceptions = l.exceptions()
	l.settings.Tool = l.engine() + " " + string(rune('0'+l.tools[l.engine()]))
	l.archive.onUpdate = func(extent store.UpdateExtent) {
		l.updateRecords(l.audience.recorded, extent)
		l.updateRecords(l.audience.received, extent)
	}
	dispatcher := Dispatcher{Store: l.archive, Sender: l, Random: l.random, Now: func() time.Time { return l.now }}
	progress, err := dispatcher.Dispatch(context.Background(), scannerUID, l.settings, l.coverage())
	if err != nil {
		l.archive.broken = 0
		l.restart()
		l.last.Next = l.now.Add(time.Second)
		return
	}
	l.last, l.archive.broken = progress, 0
}

// state returns the receiver's stored state.
func (l *simulation) state() State {
	encoded, err := l.archive.ReceiverState(context.Background(), scannerUID, l.settings.Receiver)
	must(l.rt, err)
	state, err := ParseState(encoded)
	must(l.rt, err)
	return state
}

// restartNotifier clears what the notifier remembers. The answer to a delivery that the manager has not recorded is then lost for good.
func (l *simulation) restartNotifier() {
	if outbox := l.state().Outbox; outbox != nil {
		if _, remembered := l.remembered[outbox.Message.ID]; remembered {
			l.audience.addUncertainDelivery(outbox.Message.ID)
		}
	}
	clear(l.remembered)
}

func (l *simulation) pass(d time.Duration) {
	l.now = l.now.Add(d)
	l.audience.elapsed += d
}

// setClockBack sets the clock back. No wait may exceed the longest backoff after that, since the next message would be hours late.
func (l *simulation) setClockBack(d time.Duration) {
	l.now = l.now.Add(-d)
	l.dispatch()
	if wait := l.last.Next.Sub(l.now); wait > maxUnansweredBackoff {
		l.rt.Fatalf("after the clock went back by %s the next visit is in %s, want at most %s", d, wait, maxUnansweredBackoff)
	}
}

// rollOut replaces the images of a repository by the given number of new ones.
func (l *simulation) rollOut(repository string, images int) {
	l.stop(repository)
	for i := range images {
		if l.made == maxMade {
			return
		}
		l.made++
		c := &container{repository: repository, number: l.made, workload: fmt.Sprintf("app-%d", i)}
		for v := range singles {
			if rapid.Bool().Draw(l.rt, "has it") {
				c.content = append(c.content, v)
			}
		}
		l.run(c)
	}
}

// changeEngine changes the Scanner's engine. Earlier reports of that engine stay valid.
func (l *simulation) changeEngine(engine string) {
	l.settings.Filter.Engine = engine
	for _, c := range l.all() {
		l.use(c)
	}
}

func (l *simulation) scanAll() {
	for _, c := range l.all() {
		l.scan(c)
	}
}

// newData makes a new version of the vulnerability data, in which the facts about one vulnerability differ.
func (l *simulation) newData(v int) {
	l.data++
	k := l.knows[v]
	before := k.fact
	k.fact = l.drawFact()
	if rapid.Bool().Draw(l.rt, "only one thing changes") {
		k.severity, k.hasCVE = before.severity, before.hasCVE
	}
	k.known = rapid.IntRange(0, 3).Draw(l.rt, "known") > 0
	l.knows[v] = k
}

// loseBulk removes the bulk from the data, or adds it again.
func (l *simulation) loseBulk() {
	l.data++
	for v := singles; v < len(l.knows); v++ {
		l.knows[v].known = !l.knows[v].known
	}
}

// finishAndCheck lets every attempt succeed and time pass until nothing is pending, and checks that everything was announced.
func (l *simulation) finishAndCheck() {
	l.calm = true
	l.scaleUp()
	for _, days := range []int{0, 0, 15, 0} {
		l.pass(time.Duration(days) * 24 * time.Hour)
		l.data++
		l.scanAll()
		l.dispatchUntilIdle()
	}
	// Changes of what the receiver knows now.
	for range 3 {
		for v := range singles {
			l.newData(v)
		}
		l.scanAll()
		l.dispatchUntilIdle()
	}
	l.audience.checkDuplicates()
	l.audience.checkComplete()
	state := l.last.After
	if state.Engine != l.engine() || state.Baseline.Phase != BaselineDone || state.Pending != 0 || state.Outbox != nil {
		l.rt.Fatalf("at rest with %+v", state)
	}
}

// dispatchUntilIdle visits until no further visit is due.
func (l *simulation) dispatchUntilIdle() {
	l.dispatch()
	for i := 0; !l.last.Next.IsZero(); i++ {
		if i > 1000 {
			l.rt.Fatal("the dispatcher never becomes idle")
		}
		l.pass(l.last.Next.Sub(l.now))
		l.dispatch()
	}
}

// setUp draws the receiver's settings and the images at the beginning.
func (l *simulation) setUp() {
	for _, repository := range repositories {
		l.rollOut(repository, 1)
	}
	if rapid.Bool().Draw(l.rt, "scanned") {
		l.scanAll()
	}
	s := &l.settings
	s.Address = rapid.SampledFrom(addresses).Draw(l.rt, "address")
	s.FirstScan = rapid.SampledFrom([]FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll}).Draw(l.rt, "firstScan")
	s.StoreRenewed = rapid.IntRange(0, 4).Draw(l.rt, "store renewed") == 0
	newImages := rapid.Bool().Draw(l.rt, "new images")
	all := []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed}
	s.Filter.Changes = rapid.SampledFrom([][]diff.Change{nil, all, all, {diff.ChangeNew}, {diff.ChangeNew, diff.ChangeFixed}}).Draw(l.rt, "changes")
	if newImages {
		s.Filter.Changes = withNewImages(s.Filter.Changes)
	}
}

// drawFilter draws another filter.
func (l *simulation) drawFilter() {
	f := &l.settings.Filter
	f.MinSeverity = rapid.SampledFrom([]finding.Severity{finding.Critical, finding.High, finding.Medium}).Draw(l.rt, "minSeverity")
	f.Unknown = rapid.SampledFrom([]store.UnknownPolicy{store.UnknownNever, store.UnknownIfFixable, store.UnknownAlways}).Draw(l.rt, "unknown")
	f.OnlyFixable = rapid.Bool().Draw(l.rt, "onlyFixable")
}

// changeExceptions adds an exception, or removes one.
func (l *simulation) changeExceptions() {
	if n := len(l.decisions); n > 0 && rapid.Bool().Draw(l.rt, "take back") {
		l.decisions = slices.Delete(l.decisions, n-1, n)
		return
	}
	v := rapid.IntRange(0, singles-1).Draw(l.rt, "vulnerability")
	d := decision{id: ghsaOf(v)}
	if rapid.Bool().Draw(l.rt, "by its CVE") {
		d.id = cveOf(v)
	}
	if rapid.Bool().Draw(l.rt, "in one repository") {
		d.repository = rapid.SampledFrom(repositories).Draw(l.rt, "repository")
	}
	if hours := rapid.IntRange(0, 48).Draw(l.rt, "hours"); hours > 0 {
		d.expires = l.now.Add(time.Duration(hours) * time.Hour)
	}
	l.decisions = append(l.decisions, d)
}

// TestEverythingIsAnnouncedOnce: every finding that must be announced is announced in the end. It is announced once, unless an answer was lost.
// No suppressed finding is announced, and messages are at least an interval apart, except the replies of one batch. A reply is in the thread
// of a message about its findings. This holds for any order of scans, changes of settings
// and exceptions, failures of delivery and crashes.
func TestEverythingIsAnnouncedOnce(t *testing.T) {
	template := emptyStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		l := &simulation{world: newWorld(t, rt, template), remembered: map[string]Outcome{}, threads: map[string]map[topic]bool{}}
		defer func() { _ = l.archive.Close() }()
		l.audience = newReceiverModel(l.world)
		l.setUp()
		repository := rapid.SampledFrom(repositories)
		rt.Repeat(map[string]func(*rapid.T){
			"roll out": func(rt *rapid.T) {
				l.rollOut(repository.Draw(rt, "repository"), rapid.IntRange(0, 2).Draw(rt, "images"))
			},
			"pods end":       func(rt *rapid.T) { l.end(repository.Draw(rt, "repository")) },
			"pods run again": func(rt *rapid.T) { l.start(repository.Draw(rt, "repository")) },
			"nothing runs":   func(*rapid.T) { l.scaleToZero() },
			"nothing runs for a while": func(rt *rapid.T) {
				ran := l.scaleToZero()
				l.changeEngine(rapid.SampledFrom([]string{grype, clair}).Draw(rt, "engine meanwhile"))
				l.waitFor(2)
				for _, c := range ran {
					l.run(c)
				}
			},
			"something runs":  func(*rapid.T) { l.scaleUp() },
			"unused for long": func(rt *rapid.T) { l.expire(repository.Draw(rt, "repository")) },
			"scan": func(rt *rapid.T) {
				if all := l.all(); len(all) > 0 {
					l.scan(rapid.SampledFrom(all).Draw(rt, "image"))
				}
			},
			"scan all":            func(*rapid.T) { l.scanAll() },
			"new data":            func(rt *rapid.T) { l.newData(rapid.IntRange(0, singles-1).Draw(rt, "vulnerability")); l.scanAll() },
			"data trickles":       func(rt *rapid.T) { l.newData(rapid.IntRange(0, singles-1).Draw(rt, "vulnerability")) },
			"bulk":                func(*rapid.T) { l.loseBulk(); l.scanAll() },
			"exception":           func(*rapid.T) { l.changeExceptions() },
			"exception and visit": func(*rapid.T) { l.changeExceptions(); l.waitFor(1) },
			"engine":              func(rt *rapid.T) { l.changeEngine(rapid.SampledFrom([]string{grype, clair}).Draw(rt, "engine")) },
			"tool":                func(rt *rapid.T) { l.tools[l.engine()] = rapid.IntRange(1, 2).Draw(rt, "version") },
			"filter":              func(*rapid.T) { l.drawFilter() },
			"address":             func(rt *rapid.T) { l.settings.Address = rapid.SampledFrom(addresses).Draw(rt, "another address") },
			"notice": func(rt *rapid.T) {
				id := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "notice")
				l.notices[id] = !l.notices[id]
			},
			"known findings change": func(*rapid.T) {
				l.waitFor(3)
				l.pass(time.Hour)
				for v := range singles {
					l.newData(v)
				}
				l.scanAll()
				l.waitFor(4)
			},
			"visit": func(*rapid.T) { l.dispatch() },
			"wait":  func(rt *rapid.T) { l.waitFor(rapid.IntRange(1, 4).Draw(rt, "visits")) },
			"no answers": func(rt *rapid.T) {
				l.silent = true
				l.waitFor(rapid.IntRange(1, 30).Draw(rt, "visits without an answer"))
				l.silent = false
			},
			"much time": func(rt *rapid.T) { l.pass(time.Duration(rapid.IntRange(0, 400).Draw(rt, "hours")) * time.Hour) },
			"clock put back": func(rt *rapid.T) {
				l.setClockBack(time.Duration(rapid.IntRange(1, 30*3600).Draw(rt, "seconds")) * time.Second)
			},
			"manager crashes": func(rt *rapid.T) { l.archive.broken = rapid.IntRange(1, 2).Draw(rt, "writes lost"); l.dispatch() },
			"restarts":        func(*rapid.T) { l.restart(); l.restartNotifier() },
			"Scanner changes": func(*rapid.T) { l.settings.Generation++ },
			"":                func(*rapid.T) { l.audience.checkDuplicates() },
		})
		l.finishAndCheck()
	})
}

// waitFor visits as often as given, each time when the visit before asked for it.
func (l *simulation) waitFor(visits int) {
	for l.dispatch(); visits > 0 && !l.last.Next.IsZero(); visits-- {
		l.pass(max(0, l.last.Next.Sub(l.now)))
		l.dispatch()
	}
}

// emptyStore returns the file of an empty store. Copying it is faster than creating a store for each check.
func emptyStore(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	must(t, openFaultyStore(t, path, time.Now).Close())
	file, err := os.ReadFile(path)
	must(t, err)
	return file
}

func writeFile(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }
