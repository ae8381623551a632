package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/parity"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

const ns = "chaos-0"

// at returns a time, given in seconds after a fixed start.
func at(seconds int) time.Time {
	return time.Date(2026, 5, 4, 12, 0, seconds, 0, time.UTC)
}

func digest(n int) string { return fmt.Sprintf("sha256:%064d", n) }

func repository(n int) string { return fmt.Sprintf("registry:5000/chaos/image-%d", n) }

// stored returns a scanned image with one finding.
func stored(n int) scenario.ImageFindings {
	return scenario.ImageFindings{
		Digest: digest(n), References: []string{repository(n) + "@" + digest(n)}, DataVersion: "2026-05-04T12:00:00Z grype 1",
		Findings: []finding.Finding{{
			ID: "CVE-1", Severity: finding.High, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}, Paths: []string{"/lib"},
			Advisories: []finding.Advisory{{ID: "CVE-1", Severity: "High"}},
		}},
	}
}

// world is the end of a run: what the operator has, and what was announced.
type world struct {
	team     *teamState
	all      map[ledger.Finding]time.Time
	messages []ledger.Message
	faults   []ledger.Fault
	tallies  map[string]tally
	wrong    int
	renewed  int
}

// goodWorld returns a run in which everything is as it must be: image 1 was announced before the faults, images 2 and 3 were announced, one image is deleted
// from the registry, one cannot be pulled.
func goodWorld() *world {
	w := &world{
		team: &teamState{
			namespace: ns, running: map[string]bool{"registry:5000/chaos/not-pulled:1.0": true},
			scans: map[string]scanState{}, engine: map[string][]parity.Match{},
			images:      v1alpha1.ImageCounts{Total: 5, Scanned: 3, Failed: 2, RecentlyUsed: 1},
			findings:    v1alpha1.FindingCounts{High: 3},
			unscannable: map[string]bool{digest(4): true, "registry:5000/chaos/not-pulled:1.0": true},
		},
		all:     map[ledger.Finding]time.Time{},
		tallies: map[string]tally{"kill of manager": {happened: 3}},
	}
	for n := 1; n <= 3; n++ {
		w.team.running[digest(n)] = true
		w.team.scans[digest(n)] = scanState{phase: v1alpha1.PhaseScanned}
		img := stored(n)
		w.team.stored = append(w.team.stored, img)
		w.team.engine[digest(n)] = parity.Expand(img.Findings)
	}
	w.team.running[digest(4)] = true
	w.team.scans[digest(4)] = scanState{phase: v1alpha1.PhaseFailed, reason: "ImageNotFound", attempts: 2, retry: true}
	w.team.stored = append(w.team.stored, scenario.ImageFindings{Digest: digest(4), References: []string{repository(4) + "@" + digest(4)}})
	w.team.before = linesOf(w.team.stored[:1])
	for n := 2; n <= 3; n++ {
		w.all[ledger.Finding{Webhook: ns, Name: name(v1alpha1.ChangeNew, n)}] = at(0)
		w.messages = append(w.messages, message(10*n, name(v1alpha1.ChangeNew, n)))
	}
	return w
}

func name(change v1alpha1.Change, n int) string {
	return ledger.NameOf(change, scenario.Line{Repository: repository(n), ID: "CVE-1", Package: "lib"})
}

func message(seconds int, names ...string) ledger.Message {
	return ledger.Message{Webhook: ns, Names: names, Accepted: at(seconds), Answered: at(seconds)}
}

// The end check passes when everything is as it must be, and fails for everything that is not.
func TestEndCheck(t *testing.T) {
	scan := func(w *world, n int, change func(*scanState)) {
		state := w.team.scans[digest(n)]
		change(&state)
		w.team.scans[digest(n)] = state
	}
	for name, tt := range map[string]struct {
		change func(*world)
		want   string // part of the error; empty for none
	}{
		"everything is right": {func(*world) {}, ""},
		"an image waits for a reason": {func(w *world) {
			scan(w, 4, func(s *scanState) { *s = scanState{phase: v1alpha1.PhasePending, reason: "WaitingForSlot"} })
			w.team.images.Failed, w.team.images.Pending = 1, 1
			addMany(w)
		}, ""},
		"an image waits for no reason": {func(w *world) {
			scan(w, 4, func(s *scanState) { *s = scanState{phase: v1alpha1.PhasePending} })
			w.team.images.Failed, w.team.images.Pending = 1, 1
		}, "is Pending without a reason"},
		"a failed image is tried again": {func(w *world) {
			scan(w, 4, func(s *scanState) { *s = scanState{phase: v1alpha1.PhaseCataloging, reason: "Cataloging", attempts: 2} })
			addMany(w)
		}, ""},
		"a failed image is never tried again":  {func(w *world) { scan(w, 4, func(s *scanState) { s.retry = false }) }, "no other attempt is planned"},
		"an image has no ImageScan":            {func(w *world) { delete(w.team.scans, digest(3)) }, "runs and has no state"},
		"the Scanner does not count an image":  {func(w *world) { w.team.images.Total--; w.team.images.Scanned-- }, "the Scanner counts"},
		"a failed image counts as scanned":     {func(w *world) { w.team.images.Failed--; w.team.images.Scanned++ }, "the Scanner counts"},
		"the numbers did not add up at a time": {func(w *world) { w.wrong = 1 }, "did not add up 1 times"},
		"grype prints more": {func(w *world) {
			w.team.engine[digest(2)] = append(w.team.engine[digest(2)], parity.Match{Vulnerability: "CVE-2"})
		}, "(-grype +operator)"},
		"grype prints less":                 {func(w *world) { w.team.engine[digest(2)] = []parity.Match{} }, "(-grype +operator)"},
		"an image was not compared":         {func(w *world) { delete(w.team.engine, digest(2)) }, "was not compared"},
		"the Scanner counts other findings": {func(w *world) { w.team.findings.High-- }, "the Scanner counts the findings"},
		"a finding is lost":                 {func(w *world) { w.messages = w.messages[:1] }, "1 findings are lost"},
		"present and not announced":         {func(w *world) { w.team.before = nil }, "present and not announced: CVE-1 in lib of " + repository(1)},
		"announced, and not present": {func(w *world) {
			w.team.before = append(w.team.before, "CVE-9 in lib of "+repository(1))
		}, "announced and not present: CVE-9"},
		"fixed was announced": {func(w *world) {
			fixImage(w)
			w.messages = append(w.messages, message(50, name(v1alpha1.ChangeFixed, 3)))
		}, ""},
		"fixed was not announced": {fixImage, "announced and not present: CVE-1 in lib of " + repository(3)},
		"fixed was announced, and is present": {func(w *world) {
			w.all[ledger.Finding{Webhook: ns, Name: name(v1alpha1.ChangeFixed, 3)}] = at(1)
			w.messages = append(w.messages, message(50, name(v1alpha1.ChangeFixed, 3)))
		}, "present and not announced"},
		"what is not true was announced": {func(w *world) {
			w.team.before = append(w.team.before, "CVE-7 in lib of "+repository(1)) // hides what another check finds
			w.messages = append(w.messages, message(50, "New CVE-8 in lib of "+repository(2)))
		}, "1 were announced and not true"},
		"a message came twice": {func(w *world) { w.messages = append(w.messages, message(50, w.messages[0].Names...)) }, "a message came twice"},
		"a message came twice after a fault": {func(w *world) {
			w.messages = append(w.messages, message(50, w.messages[0].Names...))
			w.faults = []ledger.Fault{{What: "database away", From: at(15), To: at(30)}, {What: ledger.Notifier, From: at(40), To: at(40)}}
		}, ""},
		"a message came twice, and its answer may be lost": {func(w *world) {
			w.messages = append(w.messages, message(50, w.messages[0].Names...))
			w.faults = []ledger.Fault{{What: "Slack cut", From: at(20), To: at(20)}}
		}, ""},
		"a message came twice after a harmless fault": {func(w *world) {
			w.messages = append(w.messages, message(50, w.messages[0].Names...))
			w.faults = []ledger.Fault{{What: "Slack delayed", From: at(15), To: at(30)}}
		}, "a message came twice"},
		"a summary was sent":     {func(w *world) { w.renewed = 1 }, "1 summaries were sent"},
		"a fault was not drawn":  {func(w *world) { w.tallies["disk full"] = tally{} }, ""},
		"a fault never happened": {func(w *world) { w.tallies["disk full"] = tally{absent: 4} }, `"disk full" never happened`},
		"hardly anything is done": {func(w *world) {
			w.team.running = map[string]bool{}
			w.team.images = v1alpha1.ImageCounts{RecentlyUsed: 1}
		}, "too few to prove anything"},
		"an image without a result is not lost": {func(w *world) {
			unscanned(w, 3)
			addMany(w)
		}, ""},
		"too many images without a result": {func(w *world) { unscanned(w, 3) }, "too few to prove anything"},
	} {
		t.Run(name, func(t *testing.T) {
			w := goodWorld()
			tt.change(w)
			faults := w.faults
			v := judge([]*teamState{w.team}, w.all, forgetAnswers(w.messages, faults, losesAnswers(linksOf("registry:5000", true))), faults)
			v.tallies, v.wrong, v.renewed = w.tallies, w.wrong, w.renewed
			err := v.problems()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("want an error with %q, got: %v", tt.want, err)
			}
			var table strings.Builder
			v.print(&table)
			if row := fmt.Sprintf("%-48s %4d\n", "running images", v.coverage.running); !strings.Contains(table.String(), row) {
				t.Errorf("the table lacks %q:\n%s", row, table.String())
			}
		})
	}
}

// fixImage replaces image 3 by one without findings.
func fixImage(w *world) {
	w.team.stored[2].Findings, w.team.engine[digest(3)] = nil, []parity.Match{}
	w.team.findings.High--
	w.all[ledger.Finding{Webhook: ns, Name: name(v1alpha1.ChangeFixed, 3)}] = at(40)
}

// unscanned makes an image fail before it was announced.
func unscanned(w *world, n int) {
	w.team.scans[digest(n)] = scanState{phase: v1alpha1.PhaseFailed, reason: "RegistryUnavailable", attempts: 3, retry: true}
	w.team.images.Scanned--
	w.team.images.Failed++
	w.team.findings.High--
	w.messages = slices.DeleteFunc(w.messages, func(m ledger.Message) bool { return slices.Contains(m.Names, name(v1alpha1.ChangeNew, n)) })
}

// addMany adds images that are scanned and announced, so that one that is not is a small share.
func addMany(w *world) {
	for n := 5; n < 35; n++ {
		img := stored(n)
		w.team.running[digest(n)], w.team.scans[digest(n)] = true, scanState{phase: v1alpha1.PhaseScanned}
		w.team.stored, w.team.engine[digest(n)] = append(w.team.stored, img), parity.Expand(img.Findings)
		w.team.images.Total++
		w.team.images.Scanned++
		w.team.findings.High++
		w.all[ledger.Finding{Webhook: ns, Name: name(v1alpha1.ChangeNew, n)}] = at(0)
		w.messages = append(w.messages, message(60+n, name(v1alpha1.ChangeNew, n)))
	}
}

// A team is settled when each image is scanned with the newest data, except those that cannot be.
func TestSettled(t *testing.T) {
	built := at(0)
	for name, tt := range map[string]struct {
		change  func(*teamState)
		settled bool
	}{
		"all with the newest data":   {func(*teamState) {}, true},
		"one with older data":        {func(s *teamState) { s.stored[1].DataVersion = "2026-05-04T11:00:00Z grype 1" }, false},
		"one without a result":       {func(s *teamState) { s.scans[digest(2)] = scanState{phase: v1alpha1.PhaseMatching} }, false},
		"one that cannot be scanned": {func(s *teamState) { s.scans[digest(4)] = scanState{phase: v1alpha1.PhasePending} }, true},
		"none at all":                {func(s *teamState) { s.stored, s.scans, s.running = nil, nil, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := goodWorld()
			tt.change(w.team)
			if err := w.team.settled(built); (err == nil) != tt.settled {
				t.Errorf("settled: want %t, got: %v", tt.settled, err)
			}
		})
	}
}
