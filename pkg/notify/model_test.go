package notify

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// topic identifies what is announced: a vulnerability, whatever its IDs, in a repository. Each vulnerability is in one package.
type topic struct {
	repository string
	v          int
}

// tale is what was last announced about a topic.
type tale struct {
	severity           finding.Severity
	fixable, exploited bool
	// fixed is true if the topic has been fixed since, excepted if an exception suppressed it.
	fixed, excepted bool
	// named is true if the topic was announced by its CVE.
	named bool
	// vague is true if the reports of the repository's images differ, so that the model does not know which of them was announced.
	vague bool
	// engines are those that have found it: no other engine can say that it is fixed.
	engines engines
}

// engines is a set of engines.
type engines int

func (w *world) theEngine() engines {
	if w.engine() == clair {
		return 2
	}
	return 1
}

// memory is what was announced to a receiver.
type memory map[topic]tale

// worst returns the fact by which findings of one topic are announced.
func worst(facts []fact) fact {
	return slices.MinFunc(facts, func(a, b fact) int {
		return cmp.Or(compareBool(b.exploited, a.exploited), cmp.Compare(b.severity, a.severity), compareBool(b.fixable, a.fixable))
	})
}

// differ reports whether the reports of a repository's images differ.
func differ(facts []fact) bool {
	return slices.ContainsFunc(facts, func(f fact) bool { return f != facts[0] })
}

func (w *world) tellOf(facts []fact) tale {
	f := worst(facts)
	return tale{
		severity: f.severity, fixable: f.fixable, exploited: f.exploited, named: f.named, vague: differ(facts), engines: w.theEngine(),
	}
}

// changes returns the changes to announce for a topic, given the facts that pass the receiver's filter.
func (w *world) changes(known tale, heard bool, passing []fact) []store.Change {
	if len(passing) == 0 {
		return nil
	}
	switch {
	case !heard:
		return []store.Change{store.ChangeNew, store.ChangeEscalated}
	case known.excepted:
		return []store.Change{store.ChangeNew}
	case known.fixed:
		return []store.Change{store.ChangeRegressed}
	}
	f := worst(passing)
	var changes []store.Change
	least := w.settings.Filter.MinSeverity
	if f.exploited && !known.exploited || known.severity < least && f.severity >= least {
		changes = append(changes, store.ChangeEscalated)
	}
	if f.fixable && !known.fixable {
		changes = append(changes, store.ChangeFixAvailable)
	}
	return changes
}

// fixed reports whether a topic is fixed and was not announced as fixed.
func (w *world) fixed(t topic, known tale) bool {
	return !known.fixed && known.engines&w.theEngine() != 0 && w.settled(t.repository) && !w.suspect() && len(w.sightings(t.repository, t.v)) == 0 && !w.unconfirmed(t.repository, t.v)
}

// wants reports whether the receiver wants a kind of change.
func (w *world) wants(change store.Change) bool {
	if wanted := w.settings.Filter.Changes; wanted != nil {
		return slices.Contains(wanted, change)
	}
	return change != store.ChangeFixed
}

// followUp updates the records of a receiver without a message, as store.Announcements.FollowUp does. Until a summary is delivered, and
// while a message is in the outbox, it updates less, as extent says.
func (w *world) followUp(m memory, extent store.Extent) {
	for t, known := range m {
		sightings, passing := w.sightings(t.repository, t.v), w.passing(t.repository, t.v)
		uncovered := slices.ContainsFunc(sightings, func(f fact) bool { return !w.covered(t.repository, t.v, f) })
		for _, change := range w.changes(known, true, passing) {
			switch {
			case extent != store.FollowAll || w.wants(change):
			case differ(sightings):
				known.vague = true
			case change == store.ChangeRegressed:
				known = w.tellOf(passing)
			case change == store.ChangeFixAvailable:
				known.fixable = true
			case change == store.ChangeEscalated:
				known.severity, known.exploited = worst(passing).severity, worst(passing).exploited
			}
		}
		if extent != store.FollowExceptions && len(sightings) > 0 {
			known.named = worst(sightings).named
		}
		switch {
		case differ(sightings) && slices.ContainsFunc(sightings, func(f fact) bool { return w.covered(t.repository, t.v, f) }):
			known.vague = true
		case len(sightings) > 0 && !uncovered:
			// A topic that comes back suppressed, possibly by another ID, is later announced as regressed or because its exception ended.
			known.vague = known.vague || known.fixed || known.named != worst(sightings).named
			known.excepted, known.fixed = true, false
		case extent == store.FollowAll && w.fixed(t, known) && (known.excepted || !w.wants(store.ChangeFixed)):
			known.excepted, known.fixed = false, true
		}
		m[t] = known
	}
}

// learn takes in what one message says.
func (m memory) learn(said []store.Said, by engines) {
	for _, s := range said {
		m[topicOf(s)] = tale{severity: s.Severity, fixable: s.Fixable, exploited: s.KnownExploited, named: strings.HasPrefix(s.ID, "CVE"), fixed: s.Change == store.ChangeFixed, engines: by}
	}
}

func topicOf(s store.Said) topic { return topic{s.Repository, numberOf(s.ID)} }

// everything returns what a summary announces.
func (w *world) everything() memory {
	all := memory{}
	for _, repository := range append(slices.Clone(repositories), bulkRepository) {
		for v := range w.knows {
			if passing := w.passing(repository, v); len(passing) > 0 {
				all[topic{repository, v}] = w.tellOf(passing)
			}
		}
	}
	return all
}

// forget drops what is not found any more. What stays is found by this engine as well.
func (w *world) forget(m memory) {
	for t, known := range m {
		if len(w.sightings(t.repository, t.v)) == 0 {
			delete(m, t)
			continue
		}
		known.engines |= w.theEngine()
		m[t] = known
	}
}

// message is a message that was composed.
type message struct {
	digest Digest
	// said lists what the message announces. covers is what a summary announces by counting.
	said   []store.Said
	covers memory
	// before is what was recorded earlier about the topics in covers. retracted is true if the message was never delivered.
	before    memory
	retracted bool
	// taken is the number of times that the receiver accepted the message. doubts is how many of these may be unknown to the manager.
	taken, doubts int
	// by is the engine that it is about, composed when it was composed, and unanswered how many of its attempts had no answer.
	by         engines
	composed   time.Duration
	unanswered int
	// givenUp is true if the message was never confirmed and counts as announced.
	givenUp bool
}

// audience is the receiver, and what the manager has recorded about it.
type audience struct {
	w *world
	// recorded is what counts as announced. heard is what really reached the receiver, or was recorded silently.
	recorded, heard memory
	messages        map[string]*message
	// credits count how often a topic may be announced again, because a summary with it was never delivered.
	credits map[topic]int
	// notices are those that hold according to the messages received.
	notices map[string]bool
	// unanswered is the number of attempts since the last delivery that may have arrived without an answer.
	unanswered int
	// elapsed is the real time that has passed. last is when latest was accepted.
	elapsed, last time.Duration
	latest        *message
}

func newAudience(w *world) *audience {
	a := &audience{
		w: w, recorded: memory{}, heard: memory{}, messages: map[string]*message{}, credits: map[topic]int{},
		notices: map[string]bool{}, last: -time.Hour, latest: &message{},
	}
	w.archive.saved, w.archive.marked = a.saved, a.marked
	return a
}

// saved inspects a state that was stored: a message in it that is not known yet was just composed.
func (a *audience) saved(encoded []byte) {
	state, err := ParseState(encoded)
	must(a.w.rt, err)
	if state.Outbox == nil || a.messages[state.Outbox.Digest.ID] != nil {
		return
	}
	m := &message{digest: state.Outbox.Digest, said: state.Outbox.Said, before: memory{}, by: a.w.theEngine(), composed: a.elapsed}
	a.messages[m.digest.ID] = m
	for _, s := range m.said {
		a.judge(s)
	}
}

// judge fails the test if a change is announced that did not happen, or that is suppressed by an exception.
func (a *audience) judge(s store.Said) {
	w, t := a.w, topicOf(s)
	known, heard := a.heard[t]
	sightings, passing := w.sightings(t.repository, t.v), w.passing(t.repository, t.v)
	finders := known.engines
	if !heard {
		finders = w.theEngine()
	}
	switch {
	case s.Change == store.ChangeFixed && !w.fixed(t, tale{engines: finders}):
		w.rt.Fatalf("%v is told to be fixed, and is not: %+v, suspect %t", t, sightings, w.suspect())
	case s.Change != store.ChangeFixed && len(passing) == 0:
		w.rt.Fatalf("%v is told as %s, and nothing of it passes the filter and all exceptions: %+v", t, s.Change, sightings)
	case !w.wants(s.Change) && heard:
		w.rt.Fatalf("%v is told as %s, which the receiver does not want", t, s.Change)
	case known.vague || differ(sightings):
		return
	case s.Change == store.ChangeFixed && heard && !known.fixed, slices.Contains(w.changes(known, heard, passing), s.Change):
		return
	case a.credits[t] > 0:
		a.credits[t]--
		return
	}
	w.rt.Fatalf("%v is told as %s (%+v), though the receiver knows %+v (%t) and the images have %+v", t, s.Change, s, known, heard, sightings)
}

// marked applies to the model what the store recorded.
func (a *audience) marked(said store.Announced) {
	w := a.w
	a.saved(said.State)
	if m := a.messages[said.Retract]; m != nil {
		a.retract(m)
	}
	if said.ForgetRepositories || said.All != nil && said.All.OnlyForget {
		w.forget(a.recorded)
		w.forget(a.heard)
	}
	m := a.messages[said.DigestID]
	if said.All != nil && !said.All.OnlyForget {
		all := w.everything()
		switch {
		case m != nil:
			m.covers = all
			for t := range all {
				if before, known := a.recorded[t]; known {
					m.before[t] = before
				}
			}
		case w.settings.FirstScan != FirstScanSilent:
			w.rt.Fatalf("%d findings are passed over, which the receiver did not ask for", len(all))
		default:
			a.heard.adopt(all)
		}
		a.recorded.adopt(all)
		return
	}
	if m != nil {
		m.givenUp = said.Log.Unconfirmed
		switch {
		case m.givenUp && (m.unanswered == 0 || a.unanswered < maxUnanswered && a.elapsed-m.composed < outboxAge):
			w.rt.Fatalf("message %s is given up after %d attempts without an answer, and %s", m.digest.ID, m.unanswered, a.elapsed-m.composed)
		case m.givenUp:
			a.unanswered = min(a.unanswered, maxUnanswered-unansweredAgain)
			a.giveUp(m)
		case m.taken == 0:
			w.rt.Fatalf("message %s is recorded as told, and was never taken", m.digest.ID)
		}
		a.recorded.learn(m.said, m.by)
		// What was followed up while it was on its way was of what was recorded before.
		a.heard.learn(m.said, m.by)
	}
}

func (m memory) adopt(others memory) {
	for t, known := range others {
		m[t] = known
	}
}

// giveUp treats an unanswered message as received, whether it arrived or not. The end of a notice may then be announced without its
// beginning.
func (a *audience) giveUp(m *message) {
	for t := range m.covers {
		a.heard[t] = a.recorded[t]
	}
	for _, n := range m.digest.Notices {
		a.notices[n.ID] = !n.Over
	}
}

// retract reverts the records of a summary that was never delivered. A message that the receiver may have must not be composed again.
func (a *audience) retract(m *message) {
	if m.unanswered > 0 {
		a.w.rt.Fatalf("message %s is composed anew after %d attempts without an answer", m.digest.ID, m.unanswered)
	}
	m.retracted = true
	for t := range m.covers {
		if before, known := m.before[t]; known {
			// The topic is announced again as if it never was.
			a.recorded[t] = before
			a.credits[t]++
		} else {
			delete(a.recorded, t)
		}
	}
}

// take has the receiver accept a message.
func (a *audience) take(id string) {
	m := a.messages[id]
	m.taken++
	switch interval := a.w.settings.GroupInterval; {
	case m.taken > 1:
	// The interval holds between messages that are known to be delivered.
	case a.elapsed-a.last < interval && a.latest.doubts == 0:
		a.w.rt.Fatalf("a message %s after the one before, want at least %s", a.elapsed-a.last, interval)
	default:
		// A summary is recorded before it is sent. FollowUp may have updated these records since.
		for t := range m.covers {
			a.heard[t] = a.recorded[t]
		}
		a.heard.learn(m.said, m.by)
		a.read(m.digest.Notices)
	}
	a.last, a.latest = a.elapsed, m
}

// read fails the test unless each notice begins before it is over, and is over before it begins again.
func (a *audience) read(notices []Notice) {
	for _, n := range notices {
		if a.notices[n.ID] != n.Over {
			a.w.rt.Fatalf("notice %s (over: %t) is told, and the receiver knew", n.ID, n.Over)
		}
		a.notices[n.ID] = !n.Over
	}
}

// doubt records that the manager may not know that the receiver has a message.
func (a *audience) doubt(id string) { a.messages[id].doubts++ }

// check fails the test if a message was delivered more often than unanswered attempts explain.
func (a *audience) check() {
	for id, m := range a.messages {
		if m.taken > 1+m.doubts {
			a.w.rt.Fatalf("message %s was taken %d times, and %d times that may have stayed unknown", id, m.taken, m.doubts)
		}
	}
}

// checkComplete fails the test if something was not announced. It must be called when nothing is pending.
func (a *audience) checkComplete() {
	w := a.w
	for id, m := range a.messages {
		if m.taken == 0 && m.covers != nil && !m.retracted && !m.givenUp {
			w.rt.Fatalf("summary %s counts as told and never arrived", id)
		}
	}
	for t, passing := range w.everythingPassing() {
		known, heard := a.recorded[t]
		if known.vague {
			continue
		}
		for _, change := range w.changes(known, heard, passing) {
			if w.wants(change) {
				w.rt.Fatalf("%v is %+v and counts as %+v (%t): %s was never told", t, passing, known, heard, change)
			}
		}
	}
	for t, known := range a.recorded {
		if w.wants(store.ChangeFixed) && !known.vague && !known.excepted && w.fixed(t, known) {
			w.rt.Fatalf("%v was told as %+v, and never that it is fixed", t, known)
		}
	}
	for id, holds := range w.notices {
		if a.notices[id] != holds {
			w.rt.Fatalf("notice %s holds: %t, and the receiver was told otherwise", id, holds)
		}
	}
}

// everythingPassing returns the facts that must be announced, by topic.
func (w *world) everythingPassing() map[topic][]fact {
	all := map[topic][]fact{}
	for t := range w.everything() {
		all[t] = w.passing(t.repository, t.v)
	}
	return all
}
