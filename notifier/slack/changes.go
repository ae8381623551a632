package slack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Bounds of the parts of a message, in bytes unless noted.
const (
	// leftOutReserve is the room for the line below the drafts that counts what does not fit.
	leftOutReserve = 800 + maxLink
	// maxUpdates and maxOthers are the numbers of blocks for updates, and for findings that no update ends. They leave blocks for what stands
	// above and below them.
	maxUpdates = 20
	maxOthers  = 12
	maxNames   = 500
	// maxFirstTimes and maxNamespacesText are the texts about images that run for the first time, and about namespaces.
	maxFirstTimes     = 1500
	maxNamespacesText = 2400
)

// changes adds totals, the updates with what they end, the findings without a fix, the fixed ones, what is only counted, new images,
// namespaces that joined, and notices.
func (m *message) changes(d announce.Message) {
	m.section(changesTotals(d))
	m.section(firstTimes(d))
	below := &message{}
	below.section(newImages(d))
	below.section(namespaces("*First scan of these namespaces*", d.JoinedNamespaces, max(0, d.MoreJoinedNamespaces)))
	below.notices(d)
	drafts, hidden := draftsOf(d)
	drafts, cut := layOut(drafts, m.limit-m.size-below.size-len(footer(d))-leftOutReserve)
	for _, dr := range drafts {
		m.section(dr.text())
	}
	m.section(leftOut(append(hidden, cut...), d))
	if len(drafts) > 0 && len(below.blocks) > 0 {
		m.divider()
	}
	m.blocks = append(m.blocks, below.blocks...)
	m.size += below.size
}

// changesTotals returns the totals above the drafts, or "" for a single section or namespace.
func changesTotals(d announce.Message) string {
	if len(d.Sections)+len(d.JoinedNamespaces) < 2 && d.Rest.Findings == 0 {
		return ""
	}
	return markedTotals(d.Totals)
}

// firstTimes has a line for each image that runs for the first time and has findings, as long as there is room. The updates below name the
// image of each finding as well.
func firstTimes(d announce.Message) string {
	text := ""
	for _, s := range d.Sections {
		if !s.FirstTime {
			continue
		}
		line := fmt.Sprintf("*%s runs here for the first time*%s", imageName(s.Repository, nil), runsIn(d, s.Workloads, s.MoreWorkloads, s.WorkloadNamespaces))
		if c := markedTotals(s.Totals); c != "" {
			line += "\n" + c
		}
		if len(text)+1+len(line) > maxFirstTimes {
			break
		}
		text += "\n" + line
	}
	return strings.TrimPrefix(text, "\n")
}

// hiddenFindings counts findings of a repository that have no draft.
type hiddenFindings struct {
	repository string
	findings   int
}

// draftsOf returns the blocks that a message of changes may have, the most important first, and what has none of them.
func draftsOf(d announce.Message) (drafts []*draft, hidden []hiddenFindings) {
	var urgent, withoutFix, fixed []*draft
	type ranked struct {
		*draft
		ends finding.Counts
		// rank is the position of the update in its section.
		rank int
	}
	var updates []ranked
	for _, s := range d.Sections {
		parts := splitSection(s)
		for rank, u := range parts.updates {
			updates = append(updates, ranked{updateDraft(d, u), u.action.Ends, rank})
		}
		runs := runsIn(d, s.Workloads, s.MoreWorkloads, s.WorkloadNamespaces)
		in := " in " + imageName(s.Repository, s.References)
		if len(parts.noFix)+parts.moreNoFix > 0 {
			noFix := &draft{
				repository: s.Repository, title: "*No fix yet" + in + "*", runs: runs, lines: linesOf(parts.noFix, func(i announce.Item) string { return noFixLine(d, i) }), more: parts.moreNoFix,
			}
			if hasExploited(parts.noFix) {
				urgent = append(urgent, noFix)
			} else {
				withoutFix = append(withoutFix, noFix)
			}
		}
		if len(parts.fixed)+parts.moreFixed > 0 {
			fixed = append(fixed, &draft{
				repository: s.Repository, title: "*Fixed" + in + "*", runs: runs, lines: linesOf(parts.fixed, fixedLine), more: parts.moreFixed,
			})
		}
		if parts.hidden > 0 {
			hidden = append(hidden, hiddenFindings{s.Repository, parts.hidden})
		}
	}
	// Of updates that end equally much, the first one of each image comes before the second one of another.
	slices.SortStableFunc(updates, func(a, b ranked) int { return cmp.Or(action.Compare(a.ends, b.ends), cmp.Compare(a.rank, b.rank)) })
	// What is exploited and has no fix comes behind the updates that end what is exploited.
	first := 0
	for _, u := range updates {
		drafts = append(drafts, u.draft)
		if u.ends.KnownExploited > 0 {
			first = len(drafts)
		}
	}
	others := slices.Concat(withoutFix, fixed)
	shownUpdates, shownUrgent := min(len(drafts), maxUpdates), min(len(urgent), maxOthers)
	shownOthers := min(len(others), maxOthers-shownUrgent)
	first = min(first, shownUpdates)
	for _, dr := range slices.Concat(drafts[shownUpdates:], urgent[shownUrgent:], others[shownOthers:]) {
		hidden = append(hidden, dr.hidden())
	}
	drafts = slices.Concat(drafts[:first], urgent[:shownUrgent], drafts[first:shownUpdates], others[:shownOthers])
	named := map[[2]string]bool{}
	for _, s := range d.Sections {
		if s.FirstTime {
			named[[2]string{s.Repository, runsIn(d, s.Workloads, s.MoreWorkloads, s.WorkloadNamespaces)}] = true
		}
	}
	nameWorkloadsOnce(drafts, named)
	for _, dr := range drafts {
		dr.readMore = repositoryPage(d, dr.repository)
	}
	return drafts, hidden
}

func hasExploited(items []announce.Item) bool {
	return slices.ContainsFunc(items, func(i announce.Item) bool { return i.KnownExploited })
}

// listedAction is an action with its listed findings. more is the number of its other findings.
type listedAction struct {
	action announce.UpdateAction
	items  []announce.Item
	more   int
}

// sectionParts are the findings of a section by what can be done about them. hidden is the number of those that updates end that the
// section does not name.
type sectionParts struct {
	updates              []listedAction
	noFix, fixed         []announce.Item
	moreNoFix, moreFixed int
	hidden               int
}

// splitSection divides a section. All of its findings are accounted for, even if the section's own numbers contradict each other.
func splitSection(s announce.Section) (parts sectionParts) {
	rest, left := s.Items, max(0, s.MoreItems)
	take := func(n int) int {
		n = min(max(n, 0), left)
		left -= n
		return n
	}
	for _, a := range s.Actions {
		listed := min(max(a.Items, 0), len(rest))
		parts.updates = append(parts.updates, listedAction{a, rest[:listed], take(a.Ends.Total() - listed)})
		rest = rest[listed:]
	}
	for _, item := range rest {
		if item.Change == diff.ChangeFixed {
			parts.fixed = append(parts.fixed, item)
		} else {
			parts.noFix = append(parts.noFix, item)
		}
	}
	all, present := len(s.Items)+max(0, s.MoreItems), s.Totals.Total()
	parts.moreNoFix = take(present - s.Totals.Fixable - len(parts.noFix))
	parts.moreFixed = take(all - present - len(parts.fixed))
	parts.hidden = left
	return parts
}

// leftOut counts the findings without a block, for lack of room here or by the planner's bounds. No later message contains them.
func leftOut(hidden []hiddenFindings, d announce.Message) string {
	rest := d.Rest
	findings, names := rest.Findings, []string{}
	for _, h := range hidden {
		findings += h.findings
		if name := announce.FamiliarName(h.repository); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	images := rest.Images + len(names)
	if findings <= 0 && images <= 0 {
		return ""
	}
	for _, name := range rest.Repositories {
		names = append(names, announce.FamiliarName(name))
	}
	named := list(names, maxRepository, maxNames, images-len(names))
	more := linkTo(d.ReadMore, "And "+announce.Pluralize(findings, "more finding"))
	return fmt.Sprintf("*%s* in %s. No later message repeats them.", more, cmp.Or(named, announce.Pluralize(images, "image")))
}

// newImages lists the images that run for the first time and have no section.
func newImages(d announce.Message) string {
	var names []string
	for _, name := range d.NewImages {
		names = append(names, announce.FamiliarName(name))
	}
	listed := list(names, maxRepository, maxNames, d.MoreNewImages)
	if listed == "" {
		return ""
	}
	return "*Runs here for the first time, with no finding to announce:* " + listed
}
