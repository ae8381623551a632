package slack

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Bounds of the parts of a message, in bytes unless noted.
const (
	// moreReserve is the room for one "and N more" line with any number, without its link.
	moreReserve = 48
	// leftOutReserve is the room for the line below the sections that counts what does not fit.
	leftOutReserve = 800
	// maxSections is a number of sections, each with a divider, that leaves blocks for what stands above and below them.
	maxSections = (maxBlocks - 9 - maxNotices) / 2
	maxNames    = 500
)

// draft is a section while the room of the message is being distributed.
type draft struct {
	title string
	// lines are all items. The first shown of them are sent.
	lines []line
	shown int
	// more is the number of items that the planner left out and only counted.
	more int
	// readMore is the command or URL that shows the other items.
	readMore string
	length   int
	full     bool
}

// changes adds totals, one section per repository, what is only counted, new images and notices. The room is distributed in rounds, one
// finding per section and round, so that a long first section does not displace the worst finding of another.
func (m *message) changes(d announce.Message) {
	m.section(changesTotals(d))
	below := &message{}
	below.section(newImages(d))
	below.notices(d)
	room := maxTotalText - m.size - below.size - len(readMore(d.ReadMore)) - leftOutReserve
	drafts := openDrafts(d, &room)
	for addRound(drafts, &room) {
	}
	for i, dr := range drafts {
		if i > 0 {
			m.divider()
		}
		m.section(dr.text())
	}
	m.section(leftOut(d.Sections[len(drafts):], d.Rest))
	if len(drafts) > 0 && len(below.blocks) > 0 {
		m.divider()
	}
	m.blocks = append(m.blocks, below.blocks...)
	m.size += below.size
}

// changesTotals returns the totals above the sections, or "" for a single section.
func changesTotals(d announce.Message) string {
	if len(d.Sections) < 2 && d.Rest.Findings == 0 {
		return ""
	}
	return totals(d.Totals)
}

// openDrafts starts a draft with title and worst finding for each section, as long as there is room.
func openDrafts(d announce.Message, room *int) []*draft {
	var drafts []*draft
	for _, s := range d.Sections[:min(len(d.Sections), maxSections)] {
		dr := &draft{title: sectionTitle(s), lines: linesOf(s.Items), more: max(0, s.MoreItems), readMore: d.ReadMore}
		dr.length = len(dr.title) + moreReserve + len(linkTo(d.ReadMore, ""))
		if len(dr.lines) > 0 {
			dr.shown = 1
			dr.length += 1 + len(dr.lines[0].String())
		}
		if dr.length > *room {
			break
		}
		*room -= dr.length
		drafts = append(drafts, dr)
	}
	return drafts
}

// addRound adds the next finding to each section that has one and has room for it. It reports whether it added any.
func addRound(drafts []*draft, room *int) bool {
	added := false
	for _, dr := range drafts {
		if dr.full || dr.shown >= len(dr.lines) {
			continue
		}
		cost := len(dr.lines[dr.shown].String())
		// A section that is full stays full: otherwise a shorter line could replace a worse finding.
		if dr.full = cost > *room || dr.length+cost > maxSectionText; dr.full {
			continue
		}
		dr.shown++
		dr.length += cost
		*room -= cost
		added = true
	}
	return added
}

// text returns the section's text as it is sent.
func (dr *draft) text() string {
	var b strings.Builder
	b.WriteString(dr.title + "\n")
	for _, l := range dr.lines[:dr.shown] {
		b.WriteString(l.String())
	}
	if more := dr.more + len(dr.lines) - dr.shown; more > 0 {
		b.WriteString("\n" + linkTo(dr.readMore, "and "+strconv.Itoa(more)+" more"))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// sectionTitle returns the image, its tags, the workloads that run it and, for a new image, its totals.
func sectionTitle(s announce.Section) string {
	first := "*" + escapedName(s.Repository, maxRepository) + "*"
	if len(s.References) > 0 {
		first += " · " + list(s.References, maxTag, maxNames/2, 0)
	}
	lines := []string{first}
	if runs := list(s.Workloads, maxWorkload, maxNames, s.MoreWorkloads); runs != "" {
		lines = append(lines, "Runs in "+runs)
	}
	if s.FirstTime {
		lines = append(lines, strings.TrimSuffix("New image: "+totals(s.Totals), ": "))
	}
	return strings.Join(lines, "\n")
}

// leftOut counts the findings and repositories without a section, for lack of room here or by the planner's bounds. No later message
// contains them.
func leftOut(hidden []announce.Section, rest announce.Rest) string {
	findings, images := rest.Findings, rest.Images
	var names []string
	for _, s := range hidden {
		findings += len(s.Items) + max(0, s.MoreItems)
		images++
		names = append(names, s.Repository)
	}
	if findings <= 0 && images <= 0 {
		return ""
	}
	names = append(names, rest.Repositories...)
	text := fmt.Sprintf("*Only counted:* %s in %s", count(findings, "more finding"), count(images, "more image"))
	if named := list(names, maxRepository, maxNames, images-len(names)); named != "" {
		text += ": " + named
	}
	return text + ". They do not come in a later message."
}

// newImages lists the images that run for the first time and have no section.
func newImages(d announce.Message) string {
	names := list(d.NewImages, maxRepository, maxNames, d.MoreNewImages)
	if names == "" {
		return ""
	}
	return "*Runs here for the first time, with no finding to announce:* " + names
}
