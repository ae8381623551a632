package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// minScanned is the share of the running images that must be scanned at the end, without those that cannot be. Otherwise the run proves nothing.
const minScanned = 0.9

// verdict is the result of a run.
type verdict struct {
	ledger.Verdict
	tallies  map[string]tally
	coverage coverage
	// equalImages and equalFindings are those that are as the engine prints them, and present the findings that are present and announced.
	equalImages, equalFindings, present int
	// scannable are the running images that can be scanned.
	scannable int
	// renewed is the number of summaries of what is present. There is one only if the store has lost what was announced.
	renewed int
	// samples is how often a Scanner's coverage was read during the faults, and wrong how often its numbers did not add up.
	samples, wrong int
	errs           []error
}

// judge compares the end of a run with what must be true. all are the findings that had to be announced.
func judge(teams []*teamState, all map[ledger.Finding]time.Time, messages []ledger.Message, faults []ledger.Fault) verdict {
	var v verdict
	covered, coverageErrs := checkCoverage(teams)
	images, findings, parityErrs := checkParity(teams)
	present, announcedErrs := checkAnnounced(teams, messages)
	v.coverage, v.equalImages, v.equalFindings, v.present = covered, images, findings, present
	v.errs = slices.Concat(coverageErrs, parityErrs, announcedErrs)
	v.scannable = covered.running
	for _, t := range teams {
		v.scannable -= len(t.unscannable)
	}
	v.Verdict = ledger.Judge(withoutUnknown(all, teams, messages), messages, faults)
	return v
}

// withoutUnknown removes the findings of images that have no result yet, and that are not announced yet either.
func withoutUnknown(all map[ledger.Finding]time.Time, teams []*teamState, messages []ledger.Message) map[ledger.Finding]time.Time {
	known := maps.Clone(all)
	unknown := map[string]map[string]bool{}
	for _, t := range teams {
		unknown[t.namespace] = t.unknownRepositories()
	}
	for _, f := range ledger.Missing(all, messages) {
		if unknown[f.Webhook][repositoryIn(f.Name)] {
			delete(known, f)
		}
	}
	return known
}

// forgetAnswers removes the answers of messages during whose delivery a fault may have lost the answer: the stand-in has sent it, and the notifier
// may not have received it.
func forgetAnswers(messages []ledger.Message, faults []ledger.Fault, loses map[string]bool) []ledger.Message {
	messages = slices.Clone(messages)
	for i, m := range messages {
		for _, f := range faults {
			if loses[f.What] && !f.From.After(m.Accepted.Add(answerTimeout)) && !f.To.Before(m.Accepted) {
				messages[i].Answered = time.Time{}
			}
		}
	}
	return messages
}

// answerTimeout is the longest time that an answer of Slack is on its way.
const answerTimeout = time.Second

func (v verdict) print(out io.Writer) {
	fmt.Fprintf(out, "  %-42s %8s %7s %7s %7s\n", "fault", "happened", "seconds", "absent", "failed")
	for _, name := range slices.Sorted(maps.Keys(v.tallies)) {
		t := v.tallies[name]
		fmt.Fprintf(out, "  %-42s %8d %7.0f %7d %7d\n", name, t.happened, t.lasted.Seconds(), t.absent, t.failed)
	}
	_, managers := v.EndsOf(ledger.Manager)
	_, notifiers := v.EndsOf(ledger.Notifier)
	rows := []ledger.Row{
		{What: "ends of the manager by itself", N: managers},
		{What: "ends of the notifier by itself", N: notifiers},
		{What: "running images", N: v.coverage.running},
		{What: "  scanned", N: v.coverage.scanned},
		{What: "  failed", N: v.coverage.failed},
		{What: "  waiting", N: v.coverage.waiting},
	}
	for _, reason := range slices.Sorted(maps.Keys(v.coverage.reasons)) {
		rows = append(rows, ledger.Row{What: "    " + reason, N: v.coverage.reasons[reason]})
	}
	ledger.Print(out, slices.Concat(rows, []ledger.Row{
		{What: "times that a Scanner's coverage was read", N: v.samples},
		{What: "  and did not add up", N: v.wrong},
		{What: "images with the findings that grype prints", N: v.equalImages},
		{What: "  their findings", N: v.equalFindings},
		{What: "findings that are present and announced", N: v.present},
		{What: "summaries, which are for a lost store", N: v.renewed},
		{What: "messages that Slack accepted", N: v.Accepted},
		{What: "  without an answer", N: v.Unanswered},
	}, v.Rows())...)
}

// problems returns an error for everything that must not happen.
func (v verdict) problems() error {
	errs := append([]error{v.Problems()}, v.errs...)
	if v.wrong > 0 {
		errs = append(errs, fmt.Errorf("the numbers of a Scanner did not add up %d times", v.wrong))
	}
	if v.renewed > 0 {
		errs = append(errs, fmt.Errorf("%d summaries were sent: the store has lost what was announced", v.renewed))
	}
	for _, name := range slices.Sorted(maps.Keys(v.tallies)) {
		if t := v.tallies[name]; t.happened == 0 && t.absent+t.failed > 0 {
			errs = append(errs, fmt.Errorf("the fault %q never happened: the run proves nothing about it", name))
		}
	}
	if v.equalImages == 0 || v.Findings == 0 || float64(v.coverage.scanned) < minScanned*float64(v.scannable) {
		errs = append(errs, fmt.Errorf("%d of %d images are scanned, %d compared with grype, %d findings had to be announced: too few to prove anything",
			v.coverage.scanned, v.scannable, v.equalImages, v.Findings))
	}
	return errors.Join(errs...)
}

// linesOf returns findings in the form in which messages name them.
func linesOf(found []scenario.ImageFindings) (lines []string) {
	for _, line := range scenario.AnnouncedLines(found) {
		lines = append(lines, line.String())
	}
	return lines
}

// lastLine returns the last line of a text.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// repositoryIn returns the repository in the name of a finding, "New CVE-2024-1 in openssl of registry/shop".
func repositoryIn(name string) string {
	_, repository, _ := strings.Cut(name, " of ")
	return repository
}
