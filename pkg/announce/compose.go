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
	maxFirstTimeItems = 3
	maxWorst          = 5
	maxWorkloads      = 10
	maxReferences     = 5
	maxNewImages      = 10
	maxRest           = 10
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
	repositories := byRepository(p.pending)
	for i, pending := range repositories {
		repository := pending[0].Repository
		outbox.Repositories = append(outbox.Repositories, repository)
		if i < maxSections {
			firstTime := p.settings.FirstScan != FirstScanAll && !slices.Contains(p.known, repository)
			m.Sections = append(m.Sections, newSection(pending, firstTime))
		} else {
			m.Rest.add(pending)
		}
	}
	m.Images = len(repositories)
	m.Totals, m.Changes = countUnfixed(p.pending), countChanges(p.pending, len(p.newImages))
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
	for _, n := range present.Worst {
		item := newItem(n)
		item.Change, item.Repository = "", text.Truncate(n.Repository, maxText)
		m.Worst = append(m.Worst, item)
	}
	return Outbox{Message: m, Repositories: p.knownRepositories(present), Findings: present.NotAnnounced}, nil
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
	return Message{
		ID: hex.EncodeToString(id[:]), Kind: kind, CreatedAt: p.now,
		Namespace: p.settings.Namespace, Scanner: p.settings.Scanner, ReadMore: text.Truncate(p.settings.ReadMore, maxURL),
		Unconfirmed: clone(p.state.Unconfirmed),
	}, nil
}

// byRepository groups changes by repository, the repository with the worst finding first. Within a repository, changes stand together by
// package, and fixed findings come last.
func byRepository(pending []store.FindingChange) [][]store.FindingChange {
	groups := groupBy(pending, func(n store.FindingChange) string { return n.Repository })
	for i, group := range groups {
		groups[i] = slices.Concat(groupBy(group, func(n store.FindingChange) string {
			if n.Change == diff.ChangeFixed {
				return fixedGroup
			}
			return n.Finding.Package.Name
		})...)
	}
	return groups
}

// fixedGroup is the group key of all fixed findings. No package has this name, since a name has no NUL.
const fixedGroup = "\x00"

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

func newSection(pending []store.FindingChange, firstTime bool) Section {
	s := Section{Repository: text.Truncate(pending[0].Repository, maxText), FirstTime: firstTime, Totals: countUnfixed(pending)}
	limit := maxItems
	if firstTime {
		limit = maxFirstTimeItems
	}
	for _, n := range pending[:min(len(pending), limit)] {
		s.Items = append(s.Items, newItem(n))
	}
	s.MoreItems = len(pending) - len(s.Items)
	s.Workloads, s.MoreWorkloads = workloadsOf(pending)
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
		item.FixedIn = text.Truncate(strings.Join(f.FixVersions, ", "), maxText)
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

// workloadsOf names each workload once, however many containers and findings it has, and returns how many exceed the bound.
func workloadsOf(pending []store.FindingChange) (named []string, more int) {
	var all []string
	for _, n := range pending {
		for _, w := range n.Workloads {
			all = append(all, text.Truncate(w.Kind+" "+w.Namespace+"/"+w.Name, maxText))
		}
	}
	return firstOf(all, maxWorkloads)
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
