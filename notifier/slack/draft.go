package slack

import (
	"strconv"
	"strings"
)

// moreReserve is the room in bytes for one "and N more" line with any number, without its link.
const moreReserve = 48

// draft is a block about findings while the room of the message is being distributed.
type draft struct {
	repository string
	// title is what to do or what holds, runs are the workloads, and ends is what an update ends.
	title, runs, ends string
	// lines are all findings. The first shown of them are sent.
	lines []string
	shown int
	// more is the number of findings that the planner left out and only counted.
	more int
	// readMore is the command or URL that shows the other findings.
	readMore string
	length   int
	full     bool
}

// layOut opens a draft with title and worst finding for each block, as long as there is room. The rest of the room is distributed in rounds,
// one finding per draft and round, so that a long first draft does not displace the worst finding of another. It returns the drafts to send, and
// what the others would have had.
func layOut(drafts []*draft, room int) (open []*draft, cut []hiddenFindings) {
	for _, dr := range drafts {
		dr.length = len(dr.heading()) + moreReserve + len(linkTo(dr.readMore, ""))
		if len(dr.lines) > 0 {
			dr.shown = 1
			dr.length += 1 + len(dr.lines[0])
		}
		if dr.length > room {
			cut = append(cut, dr.hidden())
			continue
		}
		room -= dr.length
		open = append(open, dr)
	}
	for addRound(open, &room) {
	}
	return open, cut
}

// addRound adds the next finding to each draft that has one and has room for it. It reports whether it added any.
func addRound(drafts []*draft, room *int) bool {
	added := false
	for _, dr := range drafts {
		if dr.full || dr.shown >= len(dr.lines) {
			continue
		}
		cost := 1 + len(dr.lines[dr.shown])
		// A draft that is full stays full: otherwise a shorter line could replace a worse finding.
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

func (dr *draft) heading() string { return dr.title + dr.runs + dr.ends }

// nameWorkloadsOnce removes the workloads from the drafts of an image after the first one with the same workloads. named are already above
// them: an image with its workloads.
func nameWorkloadsOnce(drafts []*draft, named map[[2]string]bool) {
	for _, dr := range drafts {
		key := [2]string{dr.repository, dr.runs}
		if named[key] {
			dr.runs = ""
		}
		named[key] = true
	}
}

// text returns the draft's text as it is sent.
func (dr *draft) text() string {
	lines := append([]string{dr.heading()}, dr.lines[:dr.shown]...)
	if more := dr.more + len(dr.lines) - dr.shown; more > 0 {
		lines = append(lines, linkTo(dr.readMore, "and "+strconv.Itoa(more)+" more"))
	}
	return strings.Join(lines, "\n")
}

// hidden counts all findings of the draft.
func (dr *draft) hidden() hiddenFindings {
	return hiddenFindings{dr.repository, len(dr.lines) + dr.more}
}
