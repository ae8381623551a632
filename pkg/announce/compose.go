package announce

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of a message. The message counts what exceeds them.
const (
	maxSections       = 8
	maxItems          = 10
	maxFirstTimeItems = 4
	maxWorst          = 5
	// maxSummaryItems bounds the findings of each action in a summary.
	maxSummaryItems = 2
	maxWorkloads    = 10
	maxReferences   = 5
	maxNewImages    = 10
	maxRest         = 10
	// maxText and maxURL (bytes) keep the largest message far below MaxDeliveryBytes, whatever names an image contains.
	maxText = 256
	maxURL  = 2048
)

// composeChanges composes the KindChanges message: the worst repositories with the worst findings of each, the names of new images, and the notices.
// All findings in p.pending count as announced, including those that the message only counts.
func (p *planning) composeChanges(notices []Notice) (Outbox, error) {
	m, err := p.newMessage(KindChanges)
	if err != nil {
		return Outbox{}, err
	}
	outbox := Outbox{Findings: len(p.pending), Announced: announcementsOf(p.pending), Repositories: slices.Clone(p.newImages)}
	joined, changes := p.splitByNamespace(p.pending)
	repositories := byRepository(changes)
	for i, pending := range repositories {
		repository := pending[0].Repository
		outbox.Repositories = append(outbox.Repositories, repository)
		if i < maxSections {
			firstTime := p.settings.FirstScan != FirstScanAll && !p.known[repository] && !p.isQuiet()
			m.Sections = append(m.Sections, newSection(pending, firstTime))
		} else {
			m.Rest.add(pending)
		}
	}
	m.Images = len(byRepository(p.pending))
	m.Totals, m.Changes = countUnfixed(p.pending), countChanges(changes, len(p.newImages))
	for _, namespace := range joined {
		for _, repository := range byRepository(namespace.pending) {
			outbox.Repositories = append(outbox.Repositories, repository[0].Repository)
		}
	}
	outbox.Joined = m.addJoined(joined)
	for _, repository := range p.newImages[:min(len(p.newImages), maxNewImages)] {
		m.NewImages = append(m.NewImages, text.Truncate(repository, maxText))
	}
	m.MoreNewImages = len(p.newImages) - len(m.NewImages)
	m.Notices = notices
	outbox.Message = m
	return outbox, nil
}

// add counts the changes of one repository that gets no section.
func (r *Rest) add(pending []store.FindingChange) {
	r.Images++
	r.Findings += len(pending)
	if len(r.Repositories) < maxRest {
		r.Repositories = append(r.Repositories, text.Truncate(pending[0].Repository, maxText))
	}
}

// countChanges counts announced changes by kind.
func countChanges(pending []store.FindingChange, newImages int) map[diff.Change]int {
	changes := map[diff.Change]int{}
	for _, n := range pending {
		changes[n.Change]++
	}
	if newImages > 0 {
		changes[diff.ChangeNewImage] = newImages
	}
	return changes
}

// countUnfixed counts findings, without fixed ones.
func countUnfixed(pending []store.FindingChange) (totals finding.Counts) {
	for _, n := range pending {
		if n.Change != diff.ChangeFixed {
			totals.AddFinding(n.Finding)
		}
	}
	return totals
}

// composeSummary composes the message about everything that is present. What passes the filter counts as announced. What does not pass stays not
// announced, so that it is new if it passes later.
func (p *planning) composeSummary(present store.Present) (Outbox, error) {
	m, err := p.newMessage(p.summaryKind())
	if err != nil {
		return Outbox{}, err
	}
	switch m.Kind {
	case KindEngineChanged:
		m.Engine, m.EngineBefore = text.Truncate(p.state.Engine, maxText), text.Truncate(p.state.Baseline.EngineBefore, maxText)
	case KindEngineUpdated:
		m.Engine, m.EngineBefore = text.Truncate(p.state.Tool, maxText), text.Truncate(p.state.Baseline.ToolBefore, maxText)
	}
	m.RestoredFrom = encodable(p.state.Baseline.RestoredFrom)
	if p.state.Baseline.onlyIfNotAnnounced() {
		m.NotAnnounced = present.NotAnnounced
	}
	m.Totals, m.Suppressed = present.Counts, present.Suppressed
	m.Images = len(p.coverage.scannedRepositories())
	m.Remaining = p.coverage.remaining()
	m.Notices, _ = p.pendingNotices()
	m.addNamespaces(present)
	m.addActions(present)
	return Outbox{Message: m, Repositories: p.knownRepositories(present), Findings: present.NotAnnounced}, nil
}

// addActions adds the most urgent updates with the worst findings that each ends, and the worst findings without a fix.
func (m *Message) addActions(present store.Present) {
	m.MoreActions = present.MoreUpdates
	list := func(findings []store.FindingChange) {
		for _, n := range findings {
			item := newItem(n)
			item.Change, item.Repository = "", text.Truncate(n.Repository, maxText)
			m.Worst = append(m.Worst, item)
		}
	}
	for _, u := range present.Updates {
		a, ends := newAction(u.Update)
		a.AtLeast, a.Items = u.Truncated, min(len(ends), maxSummaryItems)
		m.Actions = append(m.Actions, a)
		list(ends[:a.Items])
	}
	for _, n := range present.NoFix[:min(len(present.NoFix), maxWorst)] {
		list([]store.FindingChange{n})
		item := &m.Worst[len(m.Worst)-1]
		item.Workloads, item.MoreWorkloads, item.WorkloadNamespaces = workloadsOf([]store.FindingChange{n}, maxActionWorkloads)
	}
}

// summaryKind returns the reason for the summary.
func (p *planning) summaryKind() Kind {
	switch b := p.state.Baseline; {
	case b.EngineBefore != "":
		return KindEngineChanged
	case b.isRestore():
		return KindStoreRestored
	case p.isEngineUpdate():
		return KindEngineUpdated
	case b.onlyIfNotAnnounced():
		return KindFilterWidened
	case b.Renewed:
		return KindBaselineRenewed
	}
	return KindFirstScan
}

// knownRepositories returns the repositories that a baseline makes known, sorted and without duplicates.
func (p *planning) knownRepositories(present store.Present) []string {
	repositories := append(p.coverage.completeRepositories(), present.Repositories...)
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// newMessage returns a message with a random ID and without content.
func (p *planning) newMessage(kind Kind) (Message, error) {
	var id [16]byte
	if _, err := io.ReadFull(p.random, id[:]); err != nil {
		return Message{}, fmt.Errorf("read randomness: %w", err)
	}
	only := p.settings.OnlyNamespaces
	named := only[:min(len(only), MaxOnlyNamespaces)]
	return Message{
		OnlyNamespaces: slices.Clone(named), MoreOnlyNamespaces: len(only) - len(named),
		ID: hex.EncodeToString(id[:]), Kind: kind, CreatedAt: p.now, Cluster: p.settings.Cluster,
		ScannerKind: p.settings.scannerKind(), Namespace: p.settings.Namespace, Scanner: p.settings.Scanner, ReadMore: text.Truncate(p.settings.ReadMore, maxURL),
		WebUI:       text.Truncate(p.settings.WebUI, maxURL),
		Unconfirmed: clone(p.state.Unconfirmed),
	}, nil
}

// byRepository groups changes by repository, the repository with the worst finding first.
func byRepository(pending []store.FindingChange) [][]store.FindingChange {
	return groupBy(pending, func(n store.FindingChange) string { return n.Repository })
}

// groupBy groups changes by key. The group with the worst change comes first, and so does the worst change of each group.
func groupBy(pending []store.FindingChange, key func(store.FindingChange) string) [][]store.FindingChange {
	index := map[string]int{}
	var groups [][]store.FindingChange
	for _, n := range slices.SortedFunc(slices.Values(pending), compareUrgency) {
		i, found := index[key(n)]
		if !found {
			i = len(groups)
			index[key(n)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], n)
	}
	return groups
}

// compareUrgency orders changes by urgency: fixed findings last, then by finding.Worse, then by repository.
func compareUrgency(a, b store.FindingChange) int {
	return cmp.Or(
		compareBool(a.Change == diff.ChangeFixed, b.Change == diff.ChangeFixed),
		finding.Worse(a.Finding, b.Finding), cmp.Compare(a.Repository, b.Repository))
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// newSection returns the section about one repository. pending is ordered by urgency, with fixed findings last.
func newSection(pending []store.FindingChange, firstTime bool) Section {
	s := Section{Repository: text.Truncate(pending[0].Repository, maxText), FirstTime: firstTime, Totals: countUnfixed(pending)}
	actionLimit, itemLimit := maxActions, maxItems
	if firstTime {
		actionLimit, itemLimit = maxFirstTimeActions, maxFirstTimeItems
	}
	fixed, present := partition(pending, func(n store.FindingChange) bool { return n.Change == diff.ChangeFixed })
	actions, groups, more, noFix := newActions(present, actionLimit)
	s.Actions, s.MoreActions = actions, more
	groups = append(groups, noFix, fixed)
	for i, listed := range listItems(groups, itemLimit) {
		if i < len(actions) {
			actions[i].Items = listed
		}
		for _, n := range groups[i][:listed] {
			s.Items = append(s.Items, newItem(n))
		}
	}
	s.MoreItems = len(pending) - len(s.Items)
	s.Workloads, s.MoreWorkloads, s.WorkloadNamespaces = workloadsOf(pending, maxWorkloads)
	s.References = referencesOf(pending)
	return s
}

func newItem(n store.FindingChange) Item {
	f := n.Finding
	item := Item{
		Change: n.Change, ID: text.Truncate(f.ID, maxText), Severity: f.Severity, SeverityBefore: n.SeverityBefore,
		Package: text.Truncate(f.Package.Name, maxText), Version: text.Truncate(f.Package.Version, maxText),
		FixState: text.Truncate(f.FixState, maxText), KnownExploited: f.KnownExploited, ExceptionEnded: n.ExceptionEnded,
		FirstSeen: encodable(n.FirstSeen), FixSince: encodable(n.FixSince), ExploitedSince: encodable(n.ExploitedSince),
	}
	if f.Fixable() {
		item.FixedIn = text.Truncate(strings.Join(f.FixVersions, fixSeparator), maxText)
	}
	// JSON has no NaN: encoding the message would fail.
	if f.EPSS > 0 && f.EPSS <= 1 && !math.IsNaN(f.EPSS) {
		item.EPSS = f.EPSS
	}
	// A truncated URL leads nowhere.
	if len(f.URL) <= maxURL {
		item.URL = f.URL
	}
	return item
}

// encodable returns at, or the zero time if JSON may not be able to encode it. JSON allows years up to 9999 in any time zone.
func encodable(at time.Time) time.Time {
	if year := at.UTC().Year(); year < 1 || year > 9998 {
		return time.Time{}
	}
	return at
}

// workloadsOf names at most limit workloads, each once, however many containers and findings it has. It returns how many exceed the limit, and
// the number of namespaces of all.
func workloadsOf(pending []store.FindingChange, limit int) (named []string, more, inNamespaces int) {
	var all []string
	namespaces := map[string]bool{}
	for _, n := range pending {
		for _, w := range n.Workloads {
			all = append(all, text.Truncate(w.Kind+" "+w.Namespace+"/"+w.Name, maxText))
			namespaces[w.Namespace] = true
		}
	}
	named, more = firstOf(all, limit)
	return named, more, len(namespaces)
}

// referencesOf returns the tags in use, and the digest of a reference without a tag.
func referencesOf(pending []store.FindingChange) []string {
	var all []string
	for _, n := range pending {
		for _, w := range n.Workloads {
			if w.Repository == n.Repository && w.Reference != "" {
				all = append(all, text.Truncate(tagOf(w.Reference), maxText))
			}
		}
	}
	tags, _ := firstOf(all, maxReferences)
	return tags
}

func tagOf(reference string) string {
	// No registry accepts longer references, and parsing long text is slow.
	ref, err := image.ParseReference(text.Truncate(reference, 4*maxText))
	switch {
	case err != nil:
		return reference
	case ref.Tag != "":
		return ref.Tag
	}
	return ref.Digest
}

// firstOf returns the first n distinct values in ascending order, and the number of further ones.
func firstOf(values []string, n int) ([]string, int) {
	slices.Sort(values)
	values = slices.Compact(values)
	more := max(0, len(values)-n)
	return values[:len(values)-more], more
}

func announcementsOf(pending []store.FindingChange) []store.AnnouncedFinding {
	var announcement []store.AnnouncedFinding
	for _, n := range pending {
		f := n.Finding
		announcement = append(announcement, store.AnnouncedFinding{
			AnnouncementKey: store.AnnouncementKey{Repository: n.Repository, ID: f.ID, Package: f.Package.Name},
			Change:          n.Change, Severity: f.Severity, Fixable: f.Fixable(), KnownExploited: f.KnownExploited, Aliases: f.Aliases,
		})
	}
	return announcement
}
