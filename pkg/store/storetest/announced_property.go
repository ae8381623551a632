package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// modelFinding is a present or a gone finding of an image.
type modelFinding struct {
	finding.Finding
	before finding.Severity
	// gone is the data version that the finding disappeared with; empty while it is present. fixed means that other data confirmed
	// it.
	gone  string
	fixed bool
}

// announcementModel is a simple model of what is to be announced to a receiver, with the store that is compared with it.
type announcementModel struct {
	fixture
	filter store.ChangeFilter

	images    map[string]map[string]*modelFinding // by image name and finding.Key
	exploited map[string]bool
	used      map[string][]store.Workload
	left      map[string]map[store.Workload]*leftModel // by image name and containerKey
	records   map[store.AnnouncementKey]*modelRecord
	messages  int
	// counted are the findings that the last scheduled summary has counted.
	counted   map[store.AnnouncementKey]bool
	summaries int
}

// leftModel is a workload that ran an image and no longer runs it.
type leftModel struct {
	store.Workload
	at                time.Time
	ended, superseded bool
}

type modelRecord struct {
	severity              finding.Severity
	fixable, exploited    bool
	isFixed, isSuppressed bool
}

var modelImageNames = []string{"one", "two"}

func (m *announcementModel) saveReport(t *rapid.T) {
	name := rapid.SampledFrom(modelImageNames).Draw(t, "image")
	data := rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(t, "data")
	findings := finding.Merge(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) finding.Finding {
		f := vulnerable(fmt.Sprintf("CVE-2026-000%d", rapid.IntRange(1, 3).Draw(t, "id")), "openssl",
			severity(rapid.SampledFrom([]finding.Severity{finding.Unknown, finding.Low, finding.High, finding.Critical}).Draw(t, "severity")),
			version(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "version"))))
		if rapid.Bool().Draw(t, "fixable") {
			fixed(&f)
		}
		f.KnownExploited = rapid.IntRange(0, 4).Draw(t, "exploited") == 0
		return f
	}), 0, 4).Draw(t, "findings"))
	r := report(name, findings...)
	r.DataVersion = data
	_, err := m.Store.SaveReport(context.Background(), r, "")
	m.try(t, err)

	known := m.images[name]
	reported := make(map[string]bool)
	about := make(map[string]bool)
	for _, f := range findings {
		reported[f.Key()] = true
		about[f.ID] = about[f.ID] || f.KnownExploited
		before := f.Severity
		if s := known[f.Key()]; s != nil {
			if before = s.before; s.Severity != f.Severity {
				before = s.Severity
			}
		}
		known[f.Key()] = &modelFinding{Finding: f, before: before}
	}
	for key, s := range known {
		switch {
		case reported[key]:
		case s.gone == "":
			s.gone = data
		case s.gone != data:
			s.fixed = true
		}
	}
	for id, is := range about {
		m.exploited[id] = is
	}
}

func (m *announcementModel) setUsage(t *rapid.T) {
	name := rapid.SampledFrom(modelImageNames).Draw(t, "image")
	workloads := distinctWorkloads(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Workload {
		w := workload(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "workload"), rapid.SampledFrom([]string{"api", "web"}).Draw(t, "repository"))
		w.Receivers = rapid.SampledFrom([]string{"", "slack", "mail", "gone"}).Draw(t, "receivers")
		w.Completes = w.Name == "b"
		w.Reference = w.Repository + rapid.SampledFrom([]string{":1", ":2"}).Draw(t, "tag")
		return w
	}), 0, 3).Draw(t, "workloads"))
	m.clock.pass(time.Minute)
	u := used("scanner", name, workloads...)
	if kept := rapid.IntRange(0, 3).Draw(t, "kept for minutes"); kept > 0 {
		u.EndedSince = m.clock.Now().Add(-time.Duration(kept) * time.Minute)
	}
	m.try(t, m.Store.SetUsage(context.Background(), u))
	m.leave(name, u)
	m.used[name] = workloads
	for _, other := range modelImageNames {
		m.supersede(other)
	}
}

// leave records which workloads have left an image.
func (m *announcementModel) leave(name string, u store.ImageUsage) {
	for _, w := range m.used[name] {
		m.left[name][containerKey(w)] = &leftModel{Workload: w, at: m.clock.Now(), ended: w.Completes}
	}
	for key, l := range m.left[name] {
		l.ended = l.ended && !l.at.Before(u.EndedSince)
		runs := slices.ContainsFunc(u.Workloads, func(w store.Workload) bool { return containerKey(w) == key })
		if runs || !l.ended && len(u.Workloads) > 0 {
			delete(m.left[name], key)
		}
	}
}

// supersede marks the workloads of an image that run another one, or did so later.
func (m *announcementModel) supersede(name string) {
	for key, l := range m.left[name] {
		for _, other := range modelImageNames {
			if other == name {
				continue
			}
			later := m.left[other][key]
			runs := slices.ContainsFunc(m.used[other], func(w store.Workload) bool { return containerKey(w) == key })
			l.superseded = l.superseded || runs || later != nil && later.at.After(l.at)
		}
	}
}

// inUse returns the workloads that run an image, and those that have ended unless one has been rolled out to another image.
func (m *announcementModel) inUse(name string) []store.Workload {
	inUse, replaced := slices.Clone(m.used[name]), false
	for _, l := range m.left[name] {
		replaced = replaced || l.superseded
	}
	for _, l := range m.left[name] {
		if l.ended && !replaced {
			inUse = append(inUse, l.Workload)
		}
	}
	for i := range inUse {
		inUse[i].Completes = false // changes never have this field
	}
	return inUse
}

func (m *announcementModel) except(t *rapid.T) {
	var exceptions []exception.Exception
	for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(1, 3), 0, 2, rapid.ID[int]).Draw(t, "suppressed") {
		exceptions = append(exceptions, exception.Exception{
			UID: fmt.Sprint(id), Vulnerabilities: []string{fmt.Sprintf("cve-2026-000%d", id)},
			Images: rapid.SampledFrom([][]string{nil, {"api"}, {"*:1"}}).Draw(t, "images"),
		})
	}
	m.filter.Exceptions = exception.NewSet(exceptions, newClock().Now())
}

// state is what is present of one announcement key.
type state struct {
	worst     *modelFinding // of the findings that pass and are not suppressed
	workloads []store.Workload
	// present and uncovered mean that there is any finding, whether it passes or not. there also counts findings that have
	// disappeared with only one version of the data. workloads do not have an exception for the name of their image.
	there, present, uncovered bool
	// unconfirmed and wasSuppressed are of findings that images in use have lost: only one version of the data lacks it, and exceptions would suppress it.
	unconfirmed, wasSuppressed bool
}

// threshold is the lowest severity of a change that is no escalation.
func (m *announcementModel) threshold() finding.Severity {
	return max(m.filter.MinSeverity, finding.Negligible)
}

// concerns reports whether a receiver gets the changes of a workload: one that names it, or one that names no known receiver.
func concerns(route *store.Route, w store.Workload) bool {
	if route == nil {
		return true
	}
	named, known := strings.Split(w.Receivers, ","), false
	for _, name := range route.Known {
		known = known || slices.Contains(named, name)
	}
	return slices.Contains(named, route.Receiver) || !known && route.Unassigned
}

// presentStates returns what is present, and the workloads of each repository.
func (m *announcementModel) presentStates() (map[store.AnnouncementKey]*state, map[string][]store.Workload) {
	states, running := make(map[store.AnnouncementKey]*state), make(map[string][]store.Workload)
	for name := range m.used {
		all := m.inUse(name)
		byRepository := make(map[string][]store.Workload)
		for _, w := range all {
			if concerns(m.filter.Route, w) {
				byRepository[w.Repository] = append(byRepository[w.Repository], w)
			}
		}
		for repository, workloads := range byRepository {
			running[repository] = distinctWorkloads(append(running[repository], workloads...))
			var names []exception.Image
			for _, w := range workloads {
				names = append(names, imageNamed(w.Reference, key(name).Digest))
			}
			for _, s := range m.images[name] {
				key := announcementKey(repository, s.ID, s.Package.Name)
				if states[key] == nil {
					states[key] = &state{}
				}
				states[key].add(s, m, names, workloads)
			}
		}
	}
	m.addOtherImages(states)
	return states, running
}

// addOtherImages adds what is present in images that do not concern the receiver, or that nothing runs now.
func (m *announcementModel) addOtherImages(states map[store.AnnouncementKey]*state) {
	beside := func(name string, w store.Workload) {
		for _, s := range m.images[name] {
			key := announcementKey(w.Repository, s.ID, s.Package.Name)
			if states[key] == nil {
				states[key] = &state{}
			}
			states[key].there = states[key].there || !s.fixed
		}
	}
	for name, all := range m.used {
		for _, w := range all {
			beside(name, w)
		}
	}
	for name, all := range m.left {
		for _, l := range all {
			if !l.superseded {
				beside(name, l.Workload)
			}
		}
	}
}

func (st *state) add(s *modelFinding, m *announcementModel, names []exception.Image, workloads []store.Workload) {
	st.there = st.there || !s.fixed
	if s.gone != "" {
		isSuppressed := m.filter.Exceptions.SuppressedUnderAllNames(names, s.Finding) != nil
		st.wasSuppressed, st.unconfirmed = st.wasSuppressed || isSuppressed, st.unconfirmed || !isSuppressed && !s.fixed
		return
	}
	st.present = true
	if m.filter.Exceptions.SuppressedUnderAllNames(names, s.Finding) != nil {
		return
	}
	st.uncovered = true
	now := *s
	now.KnownExploited = m.exploited[s.ID]
	if !passes(now.Finding, store.ChangeFilter{MinSeverity: m.threshold(), Unknown: m.filter.Unknown, OnlyFixable: m.filter.OnlyFixable}) {
		return
	}
	if st.worst == nil || cmp.Or(finding.Worse(now.Finding, st.worst.Finding), cmp.Compare(now.before, st.worst.before)) < 0 {
		st.worst = &now
	}
	for i, w := range workloads {
		if m.filter.Exceptions.SuppressedUnderAllNames(names[i:i+1], s.Finding) == nil {
			st.workloads = distinctWorkloads(append(st.workloads, w))
		}
	}
}

func (m *announcementModel) wants(c diff.Change) bool { return slices.Contains(m.filter.Changes, c) }

// check compares the changes to announce, after changes that are not announced have been recorded on both sides.
func (m *announcementModel) check(t *rapid.T) {
	m.try(t, m.Store.UpdateAnnouncements(context.Background(), "scanner", "slack", m.filter, store.UpdateAll))
	states, running := m.presentStates()
	want := make(map[store.AnnouncementKey]store.FindingChange)
	for key, st := range states {
		if n, is := m.changesOf(key, st); is {
			want[key] = n
		}
	}
	for key, r := range m.records {
		st := states[key]
		if r.isFixed || running[key.Repository] == nil || !slices.Contains(m.filter.AbsentIsFixedIn, key.Repository) || st != nil && st.there {
			continue
		}
		if r.isSuppressed || !m.wants(diff.ChangeFixed) {
			r.isFixed, r.isSuppressed = true, false
			continue
		}
		want[key] = store.FindingChange{
			Change: diff.ChangeFixed, Repository: key.Repository, SeverityBefore: r.severity, Workloads: running[key.Repository],
			Finding: finding.Finding{ID: key.ID, Severity: r.severity, Package: finding.Package{Name: key.Package}},
		}
	}
	changes, total, err := m.Store.PendingChanges(context.Background(), "scanner", "slack", m.filter, 0)
	m.try(t, err)
	got := make(map[store.AnnouncementKey]store.FindingChange)
	for _, n := range changes {
		key := announcedFinding(n).AnnouncementKey
		if _, twice := got[key]; twice {
			t.Fatalf("%v comes twice", key)
		}
		n.FirstSeen, n.FixSince, n.ExploitedSince = time.Time{}, time.Time{}, time.Time{}
		got[key] = n
	}
	compare(t, "news", got, want)
	compare(t, "total", total, len(want))
	_, total, err = m.Store.PendingChanges(context.Background(), "scanner", "slack", m.filter, 1)
	m.try(t, err)
	compare(t, "total of what is only counted", total, len(want))
}

// newsOf returns the change to announce for one key, and records a change that is not announced.
func (m *announcementModel) changesOf(key store.AnnouncementKey, st *state) (store.FindingChange, bool) {
	r := m.records[key]
	if r != nil && st.present && !st.uncovered {
		r.isSuppressed, r.isFixed = true, false
	}
	if st.worst == nil {
		return store.FindingChange{}, false
	}
	f := st.worst.Finding
	n := store.FindingChange{Repository: key.Repository, Finding: f, SeverityBefore: st.worst.before, Workloads: st.workloads}
	if r != nil {
		n.SeverityBefore, n.ExceptionEnded = r.severity, r.isSuppressed
	}
	record := &modelRecord{severity: f.Severity, fixable: f.Fixable(), exploited: f.KnownExploited}
	switch {
	case r == nil && st.worst.before < f.Severity:
		n.Change = diff.ChangeEscalated
		if m.wants(diff.ChangeEscalated) || m.wants(diff.ChangeNew) {
			return n, true
		}
		m.records[key] = record
		return n, false
	case r == nil || r.isSuppressed:
		n.Change = diff.ChangeNew
	case r.isFixed:
		n.Change = diff.ChangeRegressed
	default:
		return n, m.changed(&n, r)
	}
	if !m.wants(n.Change) {
		m.records[key] = record
		return n, false
	}
	return n, true
}

// changed handles findings that were announced and are still present.
func (m *announcementModel) changed(n *store.FindingChange, r *modelRecord) bool {
	f, least := n.Finding, m.threshold()
	announced := false
	if f.KnownExploited && !r.exploited || f.Severity >= least && r.severity < least {
		if m.wants(diff.ChangeEscalated) {
			n.Change, announced = diff.ChangeEscalated, true
		} else {
			r.severity, r.exploited = f.Severity, f.KnownExploited
			n.SeverityBefore = f.Severity
		}
	}
	if f.Fixable() && !r.fixable {
		switch {
		case !m.wants(diff.ChangeFixAvailable):
			r.fixable = true
		case !announced:
			n.Change, announced = diff.ChangeFixAvailable, true
		}
	}
	return announced
}

// announce announces some of the changes.
func (m *announcementModel) announce(t *rapid.T) {
	m.check(t)
	changes, _, err := m.Store.PendingChanges(context.Background(), "scanner", "slack", m.filter, rapid.IntRange(0, 3).Draw(t, "limit"))
	m.try(t, err)
	m.messages++
	announcement := store.Announcement{MessageID: fmt.Sprint(m.messages)}
	for _, n := range changes {
		s := announcedFinding(n)
		announcement.Findings = append(announcement.Findings, s)
		m.records[s.AnnouncementKey] = &modelRecord{severity: s.Severity, fixable: s.Fixable, exploited: s.KnownExploited, isFixed: s.Change == diff.ChangeFixed}
	}
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", announcement))
}

// announceAll announces everything in a summary.
func (m *announcementModel) announceAll(t *rapid.T) {
	m.check(t)
	present, err := m.Store.Present(context.Background(), "scanner", "slack", m.filter, 3)
	m.try(t, err)
	m.messages++
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", store.Announcement{
		MessageID: fmt.Sprint(m.messages), Snapshot: &store.FilteredSnapshot{Filter: m.filter, SnapshotID: present.SnapshotID},
	}))
	states, _ := m.presentStates()
	for key, st := range states {
		if st.worst != nil {
			f := st.worst.Finding
			m.records[key] = &modelRecord{severity: f.Severity, fixable: f.Fixable(), exploited: f.KnownExploited}
		}
	}
}

// count compares what a scheduled summary counts with the summary before. An end is not proven if an image in
// use lacks the finding in only one version of the data, or if the repository in use is not settled and no exception suppresses the finding.
func (m *announcementModel) count(t *rapid.T) {
	states, running := m.presentStates()
	inUse := map[string]bool{}
	for repository := range running {
		inUse[repository] = true
	}
	want := store.SummaryCounts{}
	counted := make(map[store.AnnouncementKey]bool)
	for key, st := range states {
		if counted[key] = st.uncovered; st.uncovered && !m.counted[key] {
			want.Opened++
		}
	}
	for key := range m.counted {
		if !m.counted[key] || counted[key] {
			continue
		}
		want.Ended++
		st := states[key]
		switch {
		case running[key.Repository] == nil:
		case st != nil && st.unconfirmed:
			want.NotProven++
		case st != nil && (st.present || st.wasSuppressed):
		case !slices.Contains(m.filter.AbsentIsFixedIn, key.Repository):
			want.NotProven++
		}
	}
	got, err := m.Store.CountSummary(context.Background(), "scanner", "slack", m.filter, fmt.Sprint("summary ", m.summaries), inUse)
	m.try(t, err)
	compare(t, "opened, ended, not proven", []int{got.Opened, got.Ended, got.NotProven}, []int{want.Opened, want.Ended, want.NotProven})
	m.summaries++
	m.try(t, m.Store.RecordAnnouncement(context.Background(), "scanner", "slack", store.Announcement{
		MessageID: fmt.Sprint("summary ", m.summaries), Counted: &store.CountedFindings{Filter: m.filter, SnapshotID: got.SnapshotID},
	}))
	m.counted = counted
}

// requireNothingToUpdate fails the test if UpdateAnnouncements has anything to write when it is called again.
func (m *announcementModel) requireNothingToUpdate(t *rapid.T) {
	m.check(t)
	if m.writes(t, func(s *store.Store) error {
		return s.UpdateAnnouncements(context.Background(), "scanner", "slack", m.filter, store.UpdateAll)
	}) {
		t.Fatal("UpdateAnnouncements writes when there is nothing to update")
	}
}

func (m *announcementModel) try(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// testAnnouncementsAgreeWithModel checks that after any sequence of reports, exceptions, announcements and rollouts, the
// store announces exactly what the model announces.
func (on suite) testAnnouncementsAgreeWithModel(t *testing.T) {
	on.eachCheck(t, func(t *rapid.T, s fixture) {
		m := &announcementModel{
			fixture: s, images: make(map[string]map[string]*modelFinding), exploited: make(map[string]bool),
			used: make(map[string][]store.Workload), left: map[string]map[store.Workload]*leftModel{"one": {}, "two": {}}, records: make(map[store.AnnouncementKey]*modelRecord),
		}
		m.filter = drawFilter(t)
		m.filter.Changes = append([]diff.Change{}, rapid.SliceOfNDistinct(rapid.SampledFrom(
			[]diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed}), 0, 5, rapid.ID[diff.Change]).Draw(t, "changes")...)
		m.filter.AbsentIsFixedIn = rapid.SampledFrom([][]string{nil, {"api"}, {"api", "web"}}).Draw(t, "settled")
		if rapid.Bool().Draw(t, "route") {
			m.filter.Route = &store.Route{Receiver: "slack", Known: []string{"slack", "mail"}, Unassigned: rapid.Bool().Draw(t, "unassigned")}
		}
		for _, name := range modelImageNames {
			m.try(t, s.SaveCatalog(context.Background(), catalogOf(name, s.clock.Now()), nil))
			m.try(t, s.SetUsage(context.Background(), used("scanner", name, workload("a", "api"))))
			m.used[name] = []store.Workload{workload("a", "api")}
			m.images[name] = make(map[string]*modelFinding)
			_, err := s.SaveReport(context.Background(), report(name), "")
			m.try(t, err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"report": m.saveReport, "report again": m.saveReport, "use": m.setUsage, "except": m.except, "announce": m.announce, "sum up": m.announceAll, "count": m.count,
			"": m.requireNothingToUpdate,
		})
	})
}
