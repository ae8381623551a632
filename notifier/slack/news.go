package slack

import (
	"fmt"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/notify"
)

// draft is a section while lines are handed out.
type draft struct {
	section notify.Section
	title   string
	lines   []string
	length  int
	full    bool
}

// news shows one section per repository. Room is handed out in rounds, one finding per section and round, so
// that a long first section leaves no other without its worst finding.
func (m *message) news(d notify.Digest) {
	room := maxTotalText - m.size - closingReserve
	drafts := openDrafts(d.Sections, &room)
	for round := 1; addRound(drafts, round, &room); round++ {
	}
	for _, dr := range drafts {
		m.section(dr.text())
	}
	m.section(leftOut(d.Sections[len(drafts):], d.Rest.Images))
}

// openDrafts gives each section its title and its worst finding, as long as there is room.
func openDrafts(sections []notify.Section, room *int) []*draft {
	var drafts []*draft
	for _, s := range sections[:min(len(sections), maxSections)] {
		dr := &draft{section: s, title: title(s)}
		dr.length = len(dr.title) + moreReserve
		if len(s.Items) > 0 {
			dr.lines = []string{itemLine(s.Items[0])}
			dr.length += len(dr.lines[0]) + 1
		}
		if dr.length > *room {
			break
		}
		*room -= dr.length
		drafts = append(drafts, dr)
	}
	return drafts
}

// addRound adds the finding with an index to each section that has one and room for it. False: nothing was added.
func addRound(drafts []*draft, index int, room *int) bool {
	added := false
	for _, dr := range drafts {
		if dr.full || index >= len(dr.section.Items) {
			continue
		}
		line := itemLine(dr.section.Items[index])
		cost := len(line) + 1
		// A section that is full stays full: a shorter line further down would hide what is worse.
		if dr.full = cost > *room || dr.length+cost > maxSectionText; dr.full {
			continue
		}
		dr.lines = append(dr.lines, line)
		dr.length += cost
		*room -= cost
		added = true
	}
	return added
}

// text is the section as it is sent.
func (dr *draft) text() string {
	lines := append([]string{dr.title}, dr.lines...)
	if more := dr.section.MoreItems + len(dr.section.Items) - len(dr.lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// title names the image, its tags, who runs it and, for a new image, what is in it.
func title(s notify.Section) string {
	first := "*" + name(s.Repository, maxRepository) + "*"
	if len(s.References) > 0 {
		first += " · " + list(s.References, maxTag, maxNames/2, 0)
	}
	lines := []string{first}
	if runs := list(s.Workloads, maxWorkload, maxNames, s.MoreWorkloads); runs != "" {
		lines = append(lines, "Runs in "+runs)
	}
	if s.FirstTime {
		lines = append(lines, "New image: "+totals(s.Totals))
	}
	return strings.Join(lines, "\n")
}

// leftOut says what is not shown: here for lack of room, or since it is part of the next message.
func leftOut(hidden []notify.Section, next int) string {
	var lines []string
	if len(hidden) > 0 {
		findings := 0
		for _, s := range hidden {
			findings += len(s.Items) + max(0, s.MoreItems)
		}
		lines = append(lines, fmt.Sprintf("and %s with %s that did not fit here", count(len(hidden), "more image"), count(findings, "finding")))
	}
	if next > 0 {
		lines = append(lines, fmt.Sprintf("%s with news will follow in the next message", count(next, "more image")))
	}
	return strings.Join(lines, "\n")
}
