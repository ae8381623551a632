package announce

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// topic identifies what is announced: a vulnerability, whatever its IDs, in a repository. Each vulnerability is in one package.
type topic struct {
	repository string
	v          int
}

// announcement is what was last announced about a topic.
type announcement struct {
	severity           finding.Severity
	fixable, exploited bool
	// fixed is true if the topic has been fixed since, suppressed if an exception suppressed it.
	fixed, suppressed bool
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

// announcements is what was announced to a receiver.
type announcements map[topic]announcement

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

func (w *world) announcementOf(facts []fact) announcement {
	f := worst(facts)
	return announcement{
		severity: f.severity, fixable: f.fixable, exploited: f.exploited, named: f.hasCVE, vague: differ(facts), engines: w.theEngine(),
	}
}

// changes returns the changes to announce for a topic, given the facts that pass the receiver's filter.
func (w *world) changes(known announcement, isKnown bool, passing []fact) []diff.Change {
	if len(passing) == 0 {
		return nil
	}
	switch {
	case !isKnown:
		return []diff.Change{diff.ChangeNew, diff.ChangeEscalated}
	case known.suppressed:
		return []diff.Change{diff.ChangeNew}
	case known.fixed:
		return []diff.Change{diff.ChangeRegressed}
	}
	f := worst(passing)
	var changes []diff.Change
	least := w.settings.Filter.MinSeverity
	if f.exploited && !known.exploited || known.severity < least && f.severity >= least {
		changes = append(changes, diff.ChangeEscalated)
	}
	if f.fixable && !known.fixable {
		changes = append(changes, diff.ChangeFixAvailable)
	}
	return changes
}

// fixed reports whether a topic is fixed and was not announced as fixed.
func (w *world) fixed(t topic, known announcement) bool {
	return !known.fixed && known.engines&w.theEngine() != 0 && w.isComplete(t.repository) && !w.hasAnomaly() && len(w.reportedFacts(t.repository, t.v)) == 0 && !w.unconfirmed(t.repository, t.v)
}

// wants reports whether the receiver wants a kind of change.
func (w *world) wants(change diff.Change) bool {
	if wanted := w.settings.Filter.Changes; wanted != nil {
		return slices.Contains(wanted, change)
	}
	return change != diff.ChangeFixed
}

// updateRecords updates the records of a receiver without a message, as Store.UpdateAnnouncements does. Until a summary is delivered, and
// while a message is in the outbox, it updates less, as extent says.
func (w *world) updateRecords(m announcements, extent store.UpdateExtent) {
	for t, known := range m {
		sightings, passing := w.reportedFacts(t.repository, t.v), w.passing(t.repository, t.v)
		uncovered := slices.ContainsFunc(sightings, func(f fact) bool { return !w.isSuppressed(t.repository, t.v, f) })
		for _, change := range w.changes(known, true, passing) {
			switch {
			case extent != store.UpdateAll || w.wants(change):
			case differ(sightings):
				known.vague = true
			case change == diff.ChangeRegressed:
				known = w.announcementOf(passing)
			case change == diff.ChangeFixAvailable:
				known.fixable = true
			case change == diff.ChangeEscalated:
				known.severity, known.exploited = worst(passing).severity, worst(passing).exploited
			}
		}
		if extent != store.UpdateSuppressed && len(sightings) > 0 {
			known.named = worst(sightings).hasCVE
		}
		switch {
		case differ(sightings) && slices.ContainsFunc(sightings, func(f fact) bool { return w.isSuppressed(t.repository, t.v, f) }):
			known.vague = true
		case len(sightings) > 0 && !uncovered:
			// A topic that comes back suppressed, possibly by another ID, is later announced as regressed or because its exception ended.
			known.vague = known.vague || known.fixed || known.named != worst(sightings).hasCVE
			known.suppressed, known.fixed = true, false
		case extent == store.UpdateAll && w.fixed(t, known) && (known.suppressed || !w.wants(diff.ChangeFixed)):
			known.suppressed, known.fixed = false, true
		}
		m[t] = known
	}
}

// recordMessage takes in what one message says.
func (m announcements) recordMessage(announced []store.AnnouncedFinding, by engines) {
	for _, s := range announced {
		m[topicOf(s)] = announcement{severity: s.Severity, fixable: s.Fixable, exploited: s.KnownExploited, named: strings.HasPrefix(s.ID, "CVE"), fixed: s.Change == diff.ChangeFixed, engines: by}
	}
}

func topicOf(s store.AnnouncedFinding) topic { return topic{s.Repository, numberOf(s.ID)} }

// everything returns what a summary announces.
func (w *world) everything() announcements {
	all := announcements{}
	for _, repository := range append(slices.Clone(repositories), bulkRepository) {
		for v := range w.knows {
			if passing := w.passing(repository, v); len(passing) > 0 {
				all[topic{repository, v}] = w.announcementOf(passing)
			}
		}
	}
	return all
}

// forget drops what is not found any more, in some repositories or (nil) in all. What stays is found by this engine as well. What one version of
// the data lacks stays.
func (w *world) forget(m announcements, in []string) {
	for t, known := range m {
		if in != nil && !slices.Contains(in, t.repository) {
			continue
		}
		switch {
		case len(w.reportedFacts(t.repository, t.v)) > 0 || w.unconfirmed(t.repository, t.v):
			known.engines |= w.theEngine()
			m[t] = known
		case in != nil && known.engines == w.theEngine():
			known.vague = true // it stays if it was announced since the engine was changed, which the model does not know
			m[t] = known
		default:
			delete(m, t)
		}
	}
}

// message is a message that was composed.
type message struct {
	digest Message
	// announced lists what the message announces. covers is what a summary announces by counting.
	announced []store.AnnouncedFinding
	covers    announcements
	// before is what was recorded earlier about the topics in covers. retracted is true if the message was never delivered.
	before    announcements
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

// receiverModel is the receiver, and what the manager has recorded about it.
type receiverModel struct {
	w *world
	// recorded is what counts as announced. received is what really reached the receiver, or was recorded silently.
	recorded, received announcements
	messages           map[string]*message
	// credits count how often a topic may be announced again, because a summary with it was never delivered.
	credits map[topic]int
	// notices are those that hold according to the messages received.
	notices map[string]bool
	// unanswered is the number of attempts since the last delivery that may have arrived without an answer.
	unanswered int
	// elapsed is the real time that has passed. last is when latest was accepted.
	elapsed, last time.Duration
	latest        *message
	// replies is the number of replies since the last message to the channel, or since the first reply of a batch without one.
	replies int
}

func newReceiverModel(w *world) *receiverModel {
	a := &receiverModel{
		w: w, recorded: announcements{}, received: announcements{}, messages: map[string]*message{}, credits: map[topic]int{},
		notices: map[string]bool{}, last: -time.Hour, latest: &message{},
	}
	w.archive.onStateSaved, w.archive.onMarked = a.stateSaved, a.applyMark
	return a
}

// stateSaved inspects a state that was stored: a message in it that is not known yet was just composed.
func (a *receiverModel) stateSaved(encoded []byte) {
	state, err := ParseState(encoded)
	must(a.w.rt, err)
	if state.Outbox == nil || a.messages[state.Outbox.Message.ID] != nil {
		return
	}
	m := &message{digest: state.Outbox.Message, announced: state.Outbox.Announced, before: announcements{}, by: a.w.theEngine(), composed: a.elapsed}
	a.messages[m.digest.ID] = m
	for _, s := range m.announced {
		a.checkChange(s)
	}
}

// checkChange fails the test if a change is announced that did not happen, or that is suppressed by an exception.
func (a *receiverModel) checkChange(s store.AnnouncedFinding) {
	w, t := a.w, topicOf(s)
	known, isKnown := a.received[t]
	sightings, passing := w.reportedFacts(t.repository, t.v), w.passing(t.repository, t.v)
	finders := known.engines
	if !isKnown {
		finders = w.theEngine()
	}
	switch {
	case s.Change == diff.ChangeFixed && !w.fixed(t, announcement{engines: finders}):
		w.rt.Fatalf("%v is announced as fixed, and is not: %+v, anomaly %t", t, sightings, w.hasAnomaly())
	case s.Change != diff.ChangeFixed && len(passing) == 0:
		w.rt.Fatalf("%v is announced as %s, and nothing of it passes the filter and all exceptions: %+v", t, s.Change, sightings)
	case !w.wants(s.Change) && isKnown:
		w.rt.Fatalf("%v is announced as %s, which the receiver does not want", t, s.Change)
	case known.vague || differ(sightings):
		return
	case s.Change == diff.ChangeFixed && isKnown && !known.fixed, slices.Contains(w.changes(known, isKnown, passing), s.Change):
		return
	case a.credits[t] > 0:
		a.credits[t]--
		return
	}
	w.rt.Fatalf("%v is announced as %s (%+v), though the receiver knows %+v (%t) and the images have %+v", t, s.Change, s, known, isKnown, sightings)
}

// applyMark applies to the model what the store recorded.
func (a *receiverModel) applyMark(announced store.Announcement) {
	w := a.w
	a.stateSaved(announced.State)
	if m := a.messages[announced.Retract]; m != nil {
		a.retract(m)
	}
	if announced.ResetRepositories {
		w.forget(a.recorded, nil)
		w.forget(a.received, nil)
	}
	if absent := announced.DeleteAbsent; absent != nil {
		w.forget(a.recorded, absent.Repositories)
		w.forget(a.received, absent.Repositories)
	}
	m := a.messages[announced.MessageID]
	if announced.Snapshot != nil {
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
			a.received.recordAll(all)
		}
		a.recorded.recordAll(all)
		return
	}
	if m != nil {
		m.givenUp = announced.LogEntry.Unconfirmed
		switch {
		case m.givenUp && (m.unanswered == 0 || a.unanswered < maxUnanswered && a.elapsed-m.composed < maxOutboxAge):
			w.rt.Fatalf("message %s is given up after %d attempts without an answer, and %s", m.digest.ID, m.unanswered, a.elapsed-m.composed)
		case m.givenUp:
			a.unanswered = min(a.unanswered, maxUnanswered-maxUnansweredWhileSilent)
			a.assumeReceived(m)
		case m.taken == 0:
			w.rt.Fatalf("message %s is recorded as announced, and was never accepted", m.digest.ID)
		}
		a.recorded.recordMessage(m.announced, m.by)
		// What was followed up while it was on its way was of what was recorded before.
		a.received.recordMessage(m.announced, m.by)
	}
}

// number returns 1 for true.
func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (m announcements) recordAll(others announcements) {
	for t, known := range others {
		m[t] = known
	}
}

// assumeReceived treats an unanswered message as received, whether it arrived or not. The end of a notice may then be announced without its
// beginning.
func (a *receiverModel) assumeReceived(m *message) {
	for t := range m.covers {
		a.received[t] = a.recorded[t]
	}
	for _, n := range m.digest.Notices {
		a.notices[n.ID] = !n.Over
	}
}

// retract reverts the records of a summary that was never delivered. A message that the receiver may have must not be composed again.
func (a *receiverModel) retract(m *message) {
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

// accept has the receiver accept a message.
func (a *receiverModel) accept(id string, isReply bool) {
	m := a.messages[id]
	m.taken++
	early := a.elapsed-a.last < a.w.settings.GroupInterval
	if isReply && early && m.taken == 1 {
		a.replies++
	} else if m.taken == 1 {
		a.replies = number(isReply)
	}
	switch interval := a.w.settings.GroupInterval; {
	case m.taken > 1:
	// The interval holds between messages that are known to be delivered. Replies follow the message before.
	case early && (!isReply || a.replies > maxBatchThreads) && a.latest.doubts == 0 && !a.latest.givenUp:
		a.w.rt.Fatalf("a message %s after the one before, want at least %s", a.elapsed-a.last, interval)
	default:
		// A summary is recorded before it is sent. UpdateAnnouncements may have updated these records since.
		for t := range m.covers {
			a.received[t] = a.recorded[t]
		}
		a.received.recordMessage(m.announced, m.by)
		a.acceptNotices(m.digest.Notices)
	}
	a.last, a.latest = a.elapsed, m
}

// acceptNotices fails the test unless each notice begins before it is over, and is over before it begins again.
func (a *receiverModel) acceptNotices(notices []Notice) {
	for _, n := range notices {
		if a.notices[n.ID] != n.Over {
			a.w.rt.Fatalf("notice %s (over: %t) is announced, which the receiver knew", n.ID, n.Over)
		}
		a.notices[n.ID] = !n.Over
	}
}

// addUncertainDelivery records that the manager may not know that the receiver has a message.
func (a *receiverModel) addUncertainDelivery(id string) { a.messages[id].doubts++ }

// checkDuplicates fails the test if a message was delivered more often than unanswered attempts explain.
func (a *receiverModel) checkDuplicates() {
	for id, m := range a.messages {
		if m.taken > 1+m.doubts {
			a.w.rt.Fatalf("message %s was taken %d times, and %d times that may have stayed unknown", id, m.taken, m.doubts)
		}
	}
}

// checkComplete fails the test if something was not announced. It must be called when nothing is pending.
func (a *receiverModel) checkComplete() {
	w := a.w
	for id, m := range a.messages {
		if m.taken == 0 && m.covers != nil && !m.retracted && !m.givenUp {
			w.rt.Fatalf("summary %s counts as announced and never arrived", id)
		}
	}
	for t, passing := range w.everythingPassing() {
		known, isKnown := a.recorded[t]
		if known.vague {
			continue
		}
		for _, change := range w.changes(known, isKnown, passing) {
			if w.wants(change) {
				w.rt.Fatalf("%v is %+v and counts as %+v (%t): %s was never announced", t, passing, known, isKnown, change)
			}
		}
	}
	for t, known := range a.recorded {
		if w.wants(diff.ChangeFixed) && !known.vague && !known.suppressed && w.fixed(t, known) {
			w.rt.Fatalf("%v was announced as %+v, and never as fixed", t, known)
		}
	}
	for id, holds := range w.notices {
		if a.notices[id] != holds {
			w.rt.Fatalf("notice %s holds: %t, and the opposite was announced", id, holds)
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
