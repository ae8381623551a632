package notify

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds of a message. What is beyond them is counted in it, or part of the next one.
const (
	maxSections       = 8
	maxItems          = 10
	maxFirstTimeItems = 3
	maxWorst          = 5
	maxWorkloads      = 10
	maxReferences     = 5
	// maxText and maxURL keep the largest message far below MaxDeliveryBytes, whatever an image names its packages.
	maxText = 256
	maxURL  = 2048
)

// digest composes the message about what is new: the worst repositories, each with its worst findings. All
// findings of these repositories count as told, those too that are only counted in it; other repositories wait.
func (l *look) digest() (Outbox, error) {
	known, err := l.source.KnownRepositories(l.ctx)
	if err != nil {
		return Outbox{}, err
	}
	d, err := l.newDigest(KindNews)
	if err != nil {
		return Outbox{}, err
	}
	repositories := byRepository(l.loaded.news)
	more := max(0, len(repositories)-maxSections)
	outbox := Outbox{}
	for _, news := range repositories[:len(repositories)-more] {
		repository := news[0].Repository
		firstTime := l.settings.FirstScan != FirstScanAll && !slices.Contains(known, repository)
		section := newSection(news, firstTime)
		d.Sections = append(d.Sections, section)
		d.Totals = sum(d.Totals, section.Totals)
		outbox.Said = append(outbox.Said, saidOf(news)...)
		outbox.Repositories = append(outbox.Repositories, repository)
	}
	d.Images = len(d.Sections)
	outbox.Digest, outbox.Findings = d, len(outbox.Said)
	return outbox, nil
}

// summary composes the message about everything that is there. What passes the filter counts as told; what
// does not stays untold, so that it is new if it passes later.
func (l *look) summary(present store.Present) (Outbox, error) {
	d, err := l.newDigest(l.summaryKind())
	if err != nil {
		return Outbox{}, err
	}
	if d.Kind == KindEngineChanged {
		d.Engine, d.EngineBefore = clip(l.state.Engine, maxText), clip(l.state.Baseline.EngineBefore, maxText)
	}
	d.Totals = present.Counts
	d.Images = len(l.coverage.scannedRepositories())
	d.Remaining = l.coverage.remaining()
	for _, n := range present.Worst {
		item := newItem(n)
		item.Repository = clip(n.Repository, maxText)
		d.Worst = append(d.Worst, item)
	}
	return Outbox{Digest: d, Repositories: l.heardOf(present), Findings: present.News}, nil
}

// summaryKind says why there is a summary.
func (l *look) summaryKind() Kind {
	switch b := l.state.Baseline; {
	case b.EngineBefore != "":
		return KindEngineChanged
	case b.Renewed:
		return KindBaselineRenewed
	}
	return KindFirstScan
}

// heardOf lists the repositories that a baseline makes known.
func (l *look) heardOf(present store.Present) []string {
	repositories := append(l.coverage.settledRepositories(), present.Repositories...)
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// newDigest is a message without content.
func (l *look) newDigest(kind Kind) (Digest, error) {
	var id [16]byte
	if _, err := io.ReadFull(l.random, id[:]); err != nil {
		return Digest{}, fmt.Errorf("read randomness: %w", err)
	}
	return Digest{
		ID: hex.EncodeToString(id[:]), Kind: kind, CreatedAt: l.now,
		Namespace: l.settings.Namespace, Scanner: l.settings.Scanner, ReadMore: clip(l.settings.ReadMore, maxURL),
	}, nil
}

// byRepository groups news, worst repository first, each with its worst finding first.
func byRepository(news []store.News) [][]store.News {
	index := map[string]int{}
	var groups [][]store.News
	for _, n := range news {
		i, found := index[n.Repository]
		if !found {
			i = len(groups)
			index[n.Repository] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], n)
	}
	for _, group := range groups {
		slices.SortFunc(group, worseNews)
	}
	slices.SortFunc(groups, func(a, b []store.News) int { return worseNews(a[0], b[0]) })
	return groups
}

func worseNews(a, b store.News) int {
	return cmp.Or(finding.Worse(a.Finding, b.Finding), cmp.Compare(a.Repository, b.Repository))
}

func newSection(news []store.News, firstTime bool) Section {
	s := Section{Repository: clip(news[0].Repository, maxText), FirstTime: firstTime}
	limit := maxItems
	if firstTime {
		limit = maxFirstTimeItems
	}
	for i, n := range news {
		s.Totals = sum(s.Totals, countsOf(n.Finding))
		if i < limit {
			s.Items = append(s.Items, newItem(n))
		}
	}
	s.MoreItems = len(news) - len(s.Items)
	s.Workloads, s.MoreWorkloads = workloadsOf(news)
	s.References = referencesOf(news)
	return s
}

func newItem(n store.News) Item {
	f := n.Finding
	item := Item{
		ID: clip(f.ID, maxText), Severity: f.Severity,
		Package: clip(f.Package.Name, maxText), Version: clip(f.Package.Version, maxText),
		FixState: clip(f.FixState, maxText), KnownExploited: f.KnownExploited, FirstSeen: n.FirstSeen,
	}
	if f.Fixable() {
		item.FixedIn = clip(strings.Join(f.FixVersions, ", "), maxText)
	}
	// JSON has no NaN and no year beyond 9999; neither may keep a message from being sent.
	if f.EPSS > 0 && f.EPSS <= 1 && !math.IsNaN(f.EPSS) {
		item.EPSS = f.EPSS
	}
	if year := n.FirstSeen.UTC().Year(); year < 1 || year > 9998 {
		item.FirstSeen = time.Time{}
	}
	// Half an address leads nowhere.
	if len(f.URL) <= maxURL {
		item.URL = f.URL
	}
	return item
}

// workloadsOf names the workloads once each, however many containers and findings they have.
func workloadsOf(news []store.News) (named []string, more int) {
	var all []string
	for _, n := range news {
		for _, w := range n.Workloads {
			all = append(all, clip(w.Kind+" "+w.Namespace+"/"+w.Name, maxText))
		}
	}
	return firstOf(all, maxWorkloads)
}

// referencesOf lists the tags in use, or the digest where there is no tag.
func referencesOf(news []store.News) []string {
	var all []string
	for _, n := range news {
		for _, w := range n.Workloads {
			if w.Repository == n.Repository && w.Reference != "" {
				all = append(all, clip(tagOf(w.Reference), maxText))
			}
		}
	}
	tags, _ := firstOf(all, maxReferences)
	return tags
}

func tagOf(reference string) string {
	// No registry takes longer ones, and parsing them takes its time.
	ref, err := image.ParseReference(clip(reference, 4*maxText))
	switch {
	case err != nil:
		return reference
	case ref.Tag != "":
		return ref.Tag
	}
	return ref.Digest
}

// firstOf returns the first n of the distinct values in order, and how many more there are.
func firstOf(values []string, n int) ([]string, int) {
	slices.Sort(values)
	values = slices.Compact(values)
	more := max(0, len(values)-n)
	return values[:len(values)-more], more
}

func saidOf(news []store.News) []store.Said {
	var said []store.Said
	for _, n := range news {
		f := n.Finding
		said = append(said, store.Said{
			AnnouncementKey: store.AnnouncementKey{Repository: n.Repository, ID: f.ID, Package: f.Package.Name},
			Change:          n.Change, Severity: f.Severity, Fixable: f.Fixable(), KnownExploited: f.KnownExploited, Aliases: f.Aliases,
		})
	}
	return said
}

func countsOf(f finding.Finding) finding.Counts {
	var c finding.Counts
	c.Add(f.Severity, 1)
	if f.Fixable() {
		c.Fixable = 1
	}
	if f.KnownExploited {
		c.KnownExploited = 1
	}
	return c
}

func sum(a, b finding.Counts) finding.Counts {
	for _, severity := range finding.Severities() {
		a.Add(severity, b.Of(severity))
	}
	a.Fixable += b.Fixable
	a.KnownExploited += b.KnownExploited
	return a
}
