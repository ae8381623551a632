package diff

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// highAndWorse is the policy of a receiver of the default changes, of high severity or worse, in a repository whose results are complete.
func highAndWorse(changes ...Change) Policy {
	return Policy{Changes: changes, Threshold: finding.High, AbsentIsFixed: true}
}

func found(severity finding.Severity, modify ...func(*Present)) *Present {
	p := &Present{Severity: severity, SeverityBefore: severity}
	for _, m := range modify {
		m(p)
	}
	return p
}

func announced(severity finding.Severity, modify ...func(*Announced)) *Announced {
	a := &Announced{Severity: severity}
	for _, m := range modify {
		m(a)
	}
	return a
}

func fixable(p *Present)   { p.Fixable = true }
func exploited(p *Present) { p.KnownExploited = true }
func before(severity finding.Severity) func(*Present) {
	return func(p *Present) { p.SeverityBefore = severity }
}

func withFix(a *Announced)      { a.Fixable = true }
func asExploited(a *Announced)  { a.KnownExploited = true }
func asFixed(a *Announced)      { a.Fixed = true }
func suppressed(a *Announced)   { a.Suppressed = true }
func withoutFacts(a *Announced) { *a = Announced{WithoutFacts: true} }

// TestFinding is the specification of changes: what is present, what was announced, what the receiver wants, and what follows.
func TestFinding(t *testing.T) {
	const none = Change("")
	all := []Change{ChangeNew, ChangeFixAvailable, ChangeEscalated, ChangeRegressed, ChangeFixed}
	without := func(change Change) (others []Change) {
		for _, c := range all {
			if c != change {
				others = append(others, c)
			}
		}
		return others
	}
	noRoom := func(p Policy) Policy { p.NoRoom = true; return p }
	unproven := func(p Policy) Policy { p.AbsentIsFixed = false; return p }
	silent := func(changes ...Change) []Change { return changes }

	for name, test := range map[string]struct {
		present   *Present
		announced *Announced
		policy    Policy
		want      Change
		record    []Change
	}{
		// Never announced.
		"never announced": {found(finding.High), nil, highAndWorse(), ChangeNew, nil},
		"never announced, and the receiver wants no new ones":   {found(finding.High), nil, highAndWorse(without(ChangeNew)...), none, silent(ChangeNew)},
		"never announced, and was less severe when found":       {found(finding.High, before(finding.Low)), nil, highAndWorse(), ChangeEscalated, nil},
		"an escalation also goes to a receiver of new ones":     {found(finding.High, before(finding.Low)), nil, highAndWorse(ChangeNew), ChangeEscalated, nil},
		"a new one does not go to a receiver of escalations":    {found(finding.High), nil, highAndWorse(ChangeEscalated), none, silent(ChangeNew)},
		"never announced, and was more severe when found":       {found(finding.High, before(finding.Critical)), nil, highAndWorse(), ChangeNew, nil},
		"never announced, with a fix and exploited: one change": {found(finding.High, fixable, exploited), nil, highAndWorse(), ChangeNew, nil},
		"never announced, for a receiver of new images":         {found(finding.High), nil, highAndWorse(ChangeNewImage), none, silent(ChangeNew)},
		"never announced, and no room for a record":             {found(finding.High), nil, noRoom(highAndWorse(without(ChangeNew)...)), none, nil},

		// Announced, present.
		"as announced":                           {found(finding.High), announced(finding.High), highAndWorse(), none, nil},
		"a fix":                                  {found(finding.High, fixable), announced(finding.High), highAndWorse(), ChangeFixAvailable, nil},
		"announced with a fix":                   {found(finding.High, fixable), announced(finding.High, withFix), highAndWorse(), none, nil},
		"the fix was withdrawn":                  {found(finding.High), announced(finding.High, withFix), highAndWorse(), none, nil},
		"a fix that the receiver does not want":  {found(finding.High, fixable), announced(finding.High), highAndWorse(without(ChangeFixAvailable)...), none, silent(ChangeFixAvailable)},
		"exploited":                              {found(finding.High, exploited), announced(finding.High), highAndWorse(), ChangeEscalated, nil},
		"announced as exploited":                 {found(finding.High, exploited), announced(finding.High, asExploited), highAndWorse(), none, nil},
		"no longer exploited":                    {found(finding.High), announced(finding.High, asExploited), highAndWorse(), none, nil},
		"more severe, above the threshold":       {found(finding.Critical), announced(finding.High), highAndWorse(), none, nil},
		"reaches the threshold":                  {found(finding.High), announced(finding.Low, asExploited), highAndWorse(), ChangeEscalated, nil},
		"of unknown severity, and is now rated":  {found(finding.High), announced(finding.Unknown, withFix), highAndWorse(), ChangeEscalated, nil},
		"more severe, below the threshold":       {found(finding.Medium, exploited), announced(finding.Low, asExploited), highAndWorse(), none, nil},
		"less severe":                            {found(finding.High), announced(finding.Critical), highAndWorse(), none, nil},
		"exploited, and a fix":                   {found(finding.High, exploited, fixable), announced(finding.High), highAndWorse(), ChangeEscalated, nil},
		"both, and only the fix is wanted":       {found(finding.High, exploited, fixable), announced(finding.High), highAndWorse(ChangeFixAvailable), ChangeFixAvailable, silent(ChangeEscalated)},
		"both, and only the escalation":          {found(finding.High, exploited, fixable), announced(finding.High), highAndWorse(ChangeEscalated), ChangeEscalated, silent(ChangeFixAvailable)},
		"both, and none is wanted":               {found(finding.High, exploited, fixable), announced(finding.High), highAndWorse(ChangeNew), none, silent(ChangeEscalated, ChangeFixAvailable)},
		"both, by a record without facts":        {found(finding.High, exploited, fixable), announced(finding.High, withoutFacts), highAndWorse(), none, nil},
		"a change of a record takes no room":     {found(finding.High, fixable), announced(finding.High), noRoom(highAndWorse(ChangeNew)), none, silent(ChangeFixAvailable)},
		"back after it was fixed":                {found(finding.High), announced(finding.High, asFixed), highAndWorse(), ChangeRegressed, nil},
		"back with a fix and exploited":          {found(finding.High, exploited, fixable), announced(finding.High, asFixed), highAndWorse(), ChangeRegressed, nil},
		"back, and the receiver does not want":   {found(finding.High), announced(finding.High, asFixed), highAndWorse(without(ChangeRegressed)...), none, silent(ChangeRegressed)},
		"its exception has ended":                {found(finding.High), announced(finding.High, suppressed), highAndWorse(), ChangeNew, nil},
		"its exception has ended, with a fix":    {found(finding.High, fixable), announced(finding.High, suppressed), highAndWorse(), ChangeNew, nil},
		"its exception has ended, not wanted":    {found(finding.High), announced(finding.High, suppressed), highAndWorse(without(ChangeNew)...), none, silent(ChangeNew)},
		"suppressed after it was fixed, is back": {found(finding.High), announced(finding.High, suppressed, asFixed), highAndWorse(), ChangeNew, nil},

		// Announced, absent.
		"fixed": {nil, announced(finding.High), highAndWorse(all...), ChangeFixed, nil},
		"fixed, which is not announced by default":   {nil, announced(finding.High), highAndWorse(), none, silent(ChangeFixed)},
		"absent, which proves nothing":               {nil, announced(finding.High), unproven(highAndWorse(all...)), none, nil},
		"absent, which proves nothing, and no room":  {nil, announced(finding.High), noRoom(unproven(highAndWorse(all...))), none, nil},
		"announced as fixed":                         {nil, announced(finding.High, asFixed), highAndWorse(all...), none, nil},
		"fixed while an exception suppressed it":     {nil, announced(finding.High, suppressed), highAndWorse(all...), none, silent(ChangeFixed)},
		"fixed, and there is no room for its record": {nil, announced(finding.High), noRoom(highAndWorse(all...)), none, silent(ChangeFixed)},
		"fixed, by a record without facts":           {nil, announced(finding.High, withoutFacts), highAndWorse(all...), ChangeFixed, nil},
		"fixed for a receiver that wants nothing":    {nil, announced(finding.High), highAndWorse([]Change{}...), none, silent(ChangeFixed)},
	} {
		t.Run(name, func(t *testing.T) {
			d := Finding(test.present, test.announced, test.policy)
			if d.Announce != test.want || !cmp.Equal(d.Record, test.record) {
				t.Errorf("announced is %q, recorded %q; want %q and %q", d.Announce, d.Record, test.want, test.record)
			}
		})
	}
}

// TestWhatAMessageShows checks what a message shows about the announcement before.
func TestWhatAMessageShows(t *testing.T) {
	for name, test := range map[string]struct {
		present   *Present
		announced *Announced
		severity  finding.Severity
		ended     bool
	}{
		"new":                           {found(finding.High), nil, finding.High, false},
		"new, was less severe":          {found(finding.High, before(finding.Low)), nil, finding.Low, false},
		"announced with another one":    {found(finding.High, before(finding.Medium)), announced(finding.Low), finding.Low, false},
		"announced without facts":       {found(finding.High, before(finding.Low)), announced(finding.High, withoutFacts, asFixed), finding.High, false},
		"its exception has ended":       {found(finding.High), announced(finding.Critical, suppressed), finding.Critical, true},
		"fixed":                         {nil, announced(finding.High), finding.High, false},
		"fixed, announced when unknown": {nil, announced(finding.High, withoutFacts), finding.Unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := Finding(test.present, test.announced, highAndWorse(ChangeNew, ChangeFixed))
			if d.SeverityBefore != test.severity || d.ExceptionEnded != test.ended {
				t.Errorf("it was %s, its exception has ended: %t; want %s and %t", d.SeverityBefore, d.ExceptionEnded, test.severity, test.ended)
			}
		})
	}
}

// TestRecordsMakeFindingsQuiet checks that nothing is announced twice: a finding that was recorded as it is present is no change. Without a
// record, a receiver of ChangeNew is notified of each.
func TestRecordsMakeFindingsQuiet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		severity := rapid.SampledFrom(finding.Severities())
		present := Present{
			Severity: severity.Draw(t, "severity"), SeverityBefore: severity.Draw(t, "severity before"),
			Fixable: rapid.Bool().Draw(t, "fixable"), KnownExploited: rapid.Bool().Draw(t, "exploited"),
		}
		policy := Policy{
			Changes:   rapid.SampledFrom([][]Change{nil, {}, {ChangeNew}, {ChangeEscalated, ChangeFixed}}).Draw(t, "changes"),
			Threshold: severity.Draw(t, "threshold"), AbsentIsFixed: rapid.Bool().Draw(t, "complete"), NoRoom: rapid.Bool().Draw(t, "no room"),
		}
		d := Finding(&present, nil, policy)
		if got, want := d.Announce != "", policy.Wants(ChangeNew) || policy.Wants(ChangeEscalated) && present.SeverityBefore < present.Severity; got != want {
			t.Errorf("%+v without a record is %+v by %+v", present, d, policy)
		}
		record := Announced{Severity: present.Severity, Fixable: present.Fixable, KnownExploited: present.KnownExploited}
		if d := Finding(&present, &record, policy); d.Announce != "" || d.Record != nil {
			t.Errorf("%+v is %+v by %+v, though it was announced so", present, d, policy)
		}
		record.Fixed = true
		if d := Finding(nil, &record, policy); d.Announce != "" || d.Record != nil {
			t.Errorf("absent %+v is %+v by %+v, though it was announced as fixed", record, d, policy)
		}
	})
}

// TestRepository is the specification of new images.
func TestRepository(t *testing.T) {
	wanted, byDefault := Policy{Changes: []Change{ChangeNewImage}}, Policy{}
	for name, test := range map[string]struct {
		state  RepositoryState
		policy Policy
		want   Decision
	}{
		"new":                                    {RepositoryState{IsRouted: true}, wanted, Decision{Announce: ChangeNewImage}},
		"new, which is not announced by default": {RepositoryState{IsRouted: true}, byDefault, Decision{Record: []Change{ChangeNewImage}}},
		"new, of workloads that concern others":  {RepositoryState{}, wanted, Decision{Record: []Change{ChangeNewImage}}},
		"known":                                  {RepositoryState{Known: true, IsRouted: true}, wanted, Decision{}},
		"new, and findings in it are to announce":  {RepositoryState{HasChanges: true, IsRouted: true}, wanted, Decision{}},
		"the same for a receiver without new ones": {RepositoryState{HasChanges: true, IsRouted: true}, byDefault, Decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Repository(test.state, test.policy)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
