package announce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// earlierEngineLife is how long an alert fires that only an earlier engine proved. The engine in use cannot prove that it has ended.
const earlierEngineLife = 14 * 24 * time.Hour

// FiringAlert is an alert that the receiver has, with what decides when it ends.
type FiringAlert struct {
	Alert   Alert                 `json:"alert"`
	Subject store.WorkloadSubject `json:"subject"`
	Finding finding.Finding       `json:"finding"`
	// Engine is the one in use when the finding was last present, and Sources are the announced sources that know it. Types are those of the packages that
	// had it.
	Engine  string   `json:"engine,omitempty"`
	Sources []string `json:"sources,omitempty"`
	Types   []string `json:"types,omitempty"`
	// EarlierSince is since when another engine is in use; zero while Engine is.
	EarlierSince time.Time `json:"earlierSince,omitzero"`
}

// alertKey identifies what an alert is about. Severity is a label, too: with another one, the alert is another one about the same.
type alertKey struct{ namespace, workload, image, vulnerability, pkg string }

func (a Alert) key() alertKey {
	return alertKey{a.Namespace, a.Workload, a.Image, a.Vulnerability, a.Package}
}

// currentAlerts returns the alerts that fire now, and what to store about them: those of the findings that are present, and those of before whose end
// is not proven. The others of before end.
func (d *dispatch) currentAlerts(ctx context.Context, before []FiringAlert) (alerts Alerts, firing []FiringAlert, err error) {
	present, more, err := d.presentAlerts(ctx, before)
	if err != nil {
		return Alerts{}, nil, err
	}
	fired, sources := make(map[alertKey]bool, len(before)), make(map[alertKey][]string, len(before))
	for _, a := range before {
		fired[a.Alert.key()], sources[a.Alert.key()] = true, a.Sources
	}
	known := make(map[alertKey]bool, len(present))
	for i, a := range present {
		known[a.Alert.key()], present[i].Sources = true, sources[a.Alert.key()]
	}
	absent := slices.DeleteFunc(slices.Clone(before), func(a FiringAlert) bool { return known[a.Alert.key()] })
	held, err := d.heldAlerts(ctx, absent)
	if err != nil {
		return Alerts{}, nil, err
	}
	all := slices.Concat(present, held)
	room := maxAlertBytes
	firing = mostUrgent(all, fired)
	if i := slices.IndexFunc(firing, func(a FiringAlert) bool { return !takeRoom(&room, a.Alert) }); i >= 0 {
		firing = firing[:i]
	}
	if err := d.addSources(ctx, firing); err != nil {
		return Alerts{}, nil, err
	}
	alerts = Alerts{EndsAt: d.Now().Add(alertLife), More: more + len(all) - len(firing)}
	fires := make(map[alertKey]finding.Severity, len(firing))
	for _, a := range firing {
		alerts.List = append(alerts.List, a.Alert)
		fires[a.Alert.key()] = a.Alert.Severity
	}
	for _, a := range before {
		if severity, found := fires[a.Alert.key()]; (!found || severity != a.Alert.Severity) && len(alerts.List)+len(alerts.Ended) < maxFiring && takeRoom(&room, a.Alert) {
			alerts.Ended = append(alerts.Ended, a.Alert)
		}
	}
	return alerts, firing, nil
}

// takeRoom takes the room of an alert in a delivery. It reports whether there was enough.
func takeRoom(left *int, a Alert) bool {
	encoded, err := json.Marshal(a)
	*left -= len(encoded) + 1
	return err == nil && *left >= 0
}

// mostUrgent returns those of all alerts that fire, in the order of their urgency: the first maxAlerts, and those that fired before. Of equally urgent
// alerts, those that fired before come first. Beyond maxFiring, a more urgent alert takes the place of another, which is then among Alerts.More.
func mostUrgent(all []FiringAlert, fired map[alertKey]bool) []FiringAlert {
	slices.SortStableFunc(all, func(a, b FiringAlert) int {
		return cmp.Or(finding.CompareUrgency(a.Finding, b.Finding), compareBool(!fired[a.Alert.key()], !fired[b.Alert.key()]), finding.Worse(a.Finding, b.Finding))
	})
	first := min(len(all), maxAlerts)
	firing := slices.Clone(all[:first])
	for _, a := range all[first:] {
		if fired[a.Alert.key()] && len(firing) < maxFiring {
			firing = append(firing, a)
		}
	}
	return firing
}

// presentAlerts returns an alert for each workload of the findings that are present: the worst, and those of the alerts before. more is the number of
// further findings. The receiver that it asks about has no records, so that all that is present is pending for it.
func (d *dispatch) presentAlerts(ctx context.Context, before []FiringAlert) (alerts []FiringAlert, more int, err error) {
	filter := d.settings.Filter
	filter.Changes, filter.AbsentIsFixedIn = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed}, nil
	nobody := d.settings.Receiver + "/alerts" // no receiver has such a name
	present, total, err := d.Store.PendingChanges(ctx, d.scanner, nobody, filter, maxAlertFindings)
	if err != nil {
		return nil, 0, fmt.Errorf("list what is present: %w", err)
	}
	listed := make(map[store.AnnouncementKey]bool, len(present))
	for _, p := range present {
		listed[store.AnnouncementKey{Repository: p.Repository, ID: p.Finding.ID, Package: p.Finding.Package.Name}] = true
	}
	var others []store.AnnouncementKey
	for _, a := range before {
		key := store.AnnouncementKey{Repository: a.Subject.Repository, ID: a.Subject.ID, Package: a.Subject.Package}
		if !listed[key] {
			listed[key], others = true, append(others, key)
		}
	}
	left, err := d.Store.PendingChangesOf(ctx, d.scanner, nobody, filter, others)
	if err != nil {
		return nil, 0, fmt.Errorf("list which findings with alerts are present: %w", err)
	}
	present = append(present, left...)
	slices.SortStableFunc(present, compareUrgency)
	known := make(map[alertKey]bool)
	for _, p := range present {
		for _, w := range p.Workloads {
			if w.Repository != "" && w.Repository != p.Repository {
				continue
			}
			// Another container of the workload, or another spelling that is truncated, is the same alert.
			if a := newFiringAlert(p, w, d.settings.Filter.Engine); !known[a.Alert.key()] {
				known[a.Alert.key()] = true
				alerts = append(alerts, a)
			}
		}
	}
	return alerts, max(0, total-len(present)), nil
}

func newFiringAlert(p store.FindingChange, w store.Workload, engine string) FiringAlert {
	item, f := newItem(p), p.Finding
	return FiringAlert{
		Alert: Alert{
			Namespace: w.Namespace, Workload: text.Truncate(w.Kind+"/"+w.Name, maxText), Image: text.Truncate(p.Repository, maxText), Vulnerability: item.ID,
			Package: item.Package, Version: item.Version, FixedIn: item.FixedIn, Severity: item.Severity, KnownExploited: item.KnownExploited, URL: item.URL,
			StartsAt: item.FirstSeen,
		},
		Subject: store.WorkloadSubject{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Repository: p.Repository, ID: f.ID, Package: f.Package.Name},
		Finding: finding.Finding{
			ID: f.ID, Aliases: f.Aliases, Severity: f.Severity, KnownExploited: f.KnownExploited, EPSS: item.EPSS, FixState: f.FixState,
			FixVersions: f.FixVersions[:min(1, len(f.FixVersions))], Package: f.Package,
		},
		Engine: engine,
	}
}

// heldAlerts returns those of some alerts that fire although their finding is not present: its absence is not proven. An alert ends without a proof when
// its workload does not run the image any more, or by a decision: an exception, or another filter of the receiver.
func (d *dispatch) heldAlerts(ctx context.Context, absent []FiringAlert) (held []FiringAlert, err error) {
	facts, err := d.evidenceOf(ctx, absent)
	if err != nil {
		return nil, err
	}
	gaps := d.coverage.runningGaps()
	for i, a := range absent {
		f := facts[i]
		switch engine := d.settings.Filter.Engine; {
		case engine == "" || a.Engine == "" || engine == a.Engine:
			a.EarlierSince = time.Time{}
		case a.EarlierSince.IsZero():
			a.EarlierSince = d.Now()
		}
		gap, runs := gaps[a.Subject.Repository]
		f.Complete = f.Complete && runs && !gap.Concerns(a.Types)
		f.SameEngine = a.EarlierSince.IsZero()
		f.SourcesReported = !slices.ContainsFunc(a.Sources, func(source string) bool { return slices.Contains(f.Silent, source) })
		switch {
		case !f.Runs, evidence.Of(f.Facts) != evidence.Unknown, !a.EarlierSince.IsZero() && d.Now().Sub(a.EarlierSince) >= earlierEngineLife:
		case !d.settings.Filter.Passes(a.Finding), d.settings.Filter.Exceptions.SuppressedUnderAllNames(f.Images, a.Finding) != nil:
		default:
			held = append(held, a)
		}
	}
	return held, nil
}

// addSources updates the sources that know the findings of some alerts, and the types of the packages that have them.
func (d *dispatch) addSources(ctx context.Context, firing []FiringAlert) error {
	facts, err := d.evidenceOf(ctx, firing)
	for i, f := range facts {
		if f.Present {
			firing[i].Sources, firing[i].Types = evidence.KnownBy(firing[i].Sources, f.Sources, f.Silent), f.Types
		}
	}
	return err
}

func (d *dispatch) evidenceOf(ctx context.Context, alerts []FiringAlert) ([]store.WorkloadFacts, error) {
	subjects := make([]store.WorkloadSubject, len(alerts))
	for i, a := range alerts {
		subjects[i] = a.Subject
	}
	facts, err := d.Store.WorkloadEvidence(ctx, d.scanner, d.settings.Filter.Engine, d.settings.Filter.Route, subjects)
	if err != nil {
		return nil, fmt.Errorf("read the evidence about alerts: %w", err)
	}
	return facts, nil
}
