package announce

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestGrouping: findings within groupWait go into one message, and messages are groupInterval apart.
func TestGrouping(t *testing.T) {
	s := afterBaseline(t, "web")
	s.addFindings("web", finding.High, 1, 1)
	none(t, s.dispatch(), "groupWait")
	s.wantNext(30 * time.Second)
	s.pass(20 * time.Second)
	s.addFindings("web", finding.Critical, 2, 1)
	none(t, s.dispatch(), "groupWait counts from the first finding")
	s.wantNext(10 * time.Second)
	d := single(t, s.dispatchNext())
	want := []string{"CVE-2026-0002", "CVE-2026-0001"}
	if got := ids(d.Sections[0].Items); !cmp.Equal(want, got) {
		t.Errorf("items %v, want both, worst first: %v", got, want)
	}
	s.pass(time.Minute)
	s.addFindings("web", finding.High, 3, 1)
	none(t, s.dispatch(), "groupInterval")
	s.wantNext(4 * time.Minute)
	single(t, s.dispatchNext())
	s.wantIdle()
}

// TestFixedWhileWaiting: a finding that disappears before the message is sent is not announced.
func TestFixedWhileWaiting(t *testing.T) {
	s := afterBaseline(t, "web")
	s.addFindings("web", finding.High, 1, 1)
	s.dispatch()
	s.removeFindings("web")
	none(t, s.dispatchNext(), "nothing is left to announce")
	s.wantIdle()
	if !s.last.After.PendingSince.IsZero() || s.last.After.Pending != 0 {
		t.Errorf("pending %d since %s, want nothing", s.last.After.Pending, s.last.After.PendingSince)
	}
}

// TestManyRepositories: the worst eight repositories get a section, the others are counted, and all count as announced.
func TestManyRepositories(t *testing.T) {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("app-%02d", i))
	}
	s := afterBaseline(t, names...)
	for i, name := range names {
		s.addFindings(name, finding.High, i, 2)
	}
	s.addFindings("app-19", finding.Critical, 100, 1)
	s.dispatch()
	d := single(t, s.dispatchNext())
	if len(d.Sections) != 8 || d.Images != 20 || d.Sections[0].Repository != "app-19" || d.Totals.Total() != 41 || d.Changes[diff.ChangeNew] != 41 {
		t.Errorf("%d sections of %d images, first %s, %d findings, changes %v; want 8 of 20, app-19, 41",
			len(d.Sections), d.Images, d.Sections[0].Repository, d.Totals.Total(), d.Changes)
	}
	want := Rest{Images: 12, Findings: 24, Repositories: names[7:17]}
	if diff := cmp.Diff(want, d.Rest); diff != "" {
		t.Errorf("the rest (-want +got):\n%s", diff)
	}
	s.wantIdle()
	if s.last.After.Pending != 0 || s.notAnnounced() != 0 {
		t.Errorf("%d findings are pending, want none", s.last.After.Pending)
	}
}

// TestSectionOrder: the items of each update come first, the most urgent update before the others, then those without a fix, and fixed ones
// last. Fixed ones are not in the totals.
func TestSectionOrder(t *testing.T) {
	item := func(change diff.Change, id, pkg string, severity finding.Severity, fixes ...string) store.FindingChange {
		f := finding.Finding{ID: id, Severity: severity, Package: finding.Package{Name: pkg, Version: "1"}, FixVersions: fixes}
		if len(fixes) > 0 {
			f.FixState = finding.FixStateFixed
		}
		return store.FindingChange{
			Change: change, Repository: "web", Finding: f, Workloads: []store.Workload{{Namespace: "shop", Kind: "Deployment", Name: "for-" + pkg}},
		}
	}
	groups := byRepository([]store.FindingChange{
		item(diff.ChangeFixed, "CVE-2026-0001", "a", finding.Critical),
		item(diff.ChangeNew, "CVE-2026-0002", "b", finding.Medium, "2"),
		item(diff.ChangeNew, "CVE-2026-0003", "a", finding.High, "3"),
		item(diff.ChangeFixAvailable, "CVE-2026-0004", "b", finding.Critical, "2"),
		item(diff.ChangeFixed, "CVE-2026-0005", "b", finding.High),
		item(diff.ChangeEscalated, "CVE-2026-0006", "b", finding.Medium, "4"),
		item(diff.ChangeNew, "CVE-2026-0007", "c", finding.Critical),
	})
	section := newSection(groups[0], false)
	want := []string{"CVE-2026-0004", "CVE-2026-0002", "CVE-2026-0006", "CVE-2026-0003", "CVE-2026-0007", "CVE-2026-0001", "CVE-2026-0005"}
	if diff := cmp.Diff(want, ids(section.Items)); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(finding.Counts{Critical: 2, High: 1, Medium: 2, Fixable: 4}, section.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	wantActions := []UpdateAction{
		{
			Repository: "web", Package: "b", Versions: []string{"1"}, Fixes: []Fix{{"2", 2}, {"4", 1}}, Ends: finding.Counts{Critical: 1, Medium: 2, Fixable: 3}, Items: 3,
			Workloads: []string{"Deployment shop/for-b"}, WorkloadNamespaces: 1,
		},
		{
			Repository: "web", Package: "a", Versions: []string{"1"}, Fixes: []Fix{{"3", 1}}, Ends: finding.Counts{High: 1, Fixable: 1}, Items: 1,
			Workloads: []string{"Deployment shop/for-a"}, WorkloadNamespaces: 1,
		},
	}
	if diff := cmp.Diff(wantActions, section.Actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestWithActions: the items of a message of an earlier version are grouped by update, and a message of this version stays as it is.
func TestWithActions(t *testing.T) {
	var earlier Message
	body := `{"sections": [{"repository": "web", "items": [
		{"change": "New", "id": "CVE-1", "severity": "High", "package": "a", "version": "1"},
		{"change": "Fixed", "id": "CVE-2", "severity": "High", "package": "b"},
		{"change": "New", "id": "CVE-3", "severity": "Low", "package": "b", "version": "1", "fixedIn": "2, 3"},
		{"change": "New", "id": "CVE-4", "severity": "Low", "package": "b", "version": "1", "fixedIn": "2"}]}],
		"worst": [{"id": "CVE-5", "severity": "High", "package": "a", "fixedIn": "2", "repository": "db"}]}`
	if err := json.Unmarshal([]byte(body), &earlier); err != nil {
		t.Fatal(err)
	}
	d := earlier.WithActions()
	if diff := cmp.Diff([]string{"CVE-3", "CVE-4", "CVE-1", "CVE-2"}, ids(d.Sections[0].Items)); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	want := []UpdateAction{{Repository: "web", Package: "b", Versions: []string{"1"}, Fixes: []Fix{{"2", 2}}, Ends: finding.Counts{Low: 2, Fixable: 2}, Items: 2}}
	if diff := cmp.Diff(want, d.Sections[0].Actions); diff != "" {
		t.Errorf("actions of the section (-want +got):\n%s", diff)
	}
	want = []UpdateAction{{Repository: "db", Package: "a", Fixes: []Fix{{"2", 1}}, Ends: finding.Counts{High: 1, Fixable: 1}, Items: 1}}
	if diff := cmp.Diff(want, d.Actions); diff != "" {
		t.Errorf("actions of the summary (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(d, d.WithActions()); diff != "" {
		t.Errorf("a message that has actions changes (-want +got):\n%s", diff)
	}
}

// TestManyFindings: ten findings are listed, all are counted, and all count as announced.
func TestManyFindings(t *testing.T) {
	s := afterBaseline(t, "web")
	s.addFindings("web", finding.High, 1, 25)
	s.dispatch()
	section := single(t, s.dispatchNext()).Sections[0]
	if len(section.Items) != 10 || section.MoreItems != 15 || section.Totals.High != 25 {
		t.Errorf("%d items, %d more, %d in all; want 10, 15 and 25", len(section.Items), section.MoreItems, section.Totals.High)
	}
	s.wantIdle()
}

// TestNewRepository: a repository that runs later gets a first-time section. A repository that was scanned without findings is known.
func TestNewRepository(t *testing.T) {
	s := afterBaseline(t, "web")
	s.addFindings("db", finding.High, 1, 6)
	s.image("cache", image.Scanned)
	s.dispatch()
	section := single(t, s.dispatchNext()).Sections[0]
	if !section.FirstTime || len(section.Items) != 4 || section.MoreItems != 2 {
		t.Errorf("section %+v, want a first-time section with the worst 4", section)
	}
	s.pass(time.Hour)
	s.addFindings("cache", finding.High, 1, 1)
	s.dispatch()
	if section := single(t, s.dispatchNext()).Sections[0]; section.FirstTime {
		t.Error("cache was scanned before without findings; want its first finding as plain news")
	}
}

// TestHalfScannedRepository: a repository does not become known while one of its images has no result.
func TestHalfScannedRepository(t *testing.T) {
	s := afterBaseline(t, "web")
	s.coverage.Images = append(s.coverage.Images,
		Image{Key: "1", Repositories: []string{"db"}, State: image.Scanned}, Image{Key: "2", Repositories: []string{"db"}, State: image.Pending})
	s.dispatch()
	if s.isKnown("db") {
		t.Error("db is taken for known while one of its images is pending")
	}
	s.coverage.Images[len(s.coverage.Images)-1].State = image.Scanned
	s.dispatch()
	if !s.isKnown("db") {
		t.Error("db is not known though all its images have a result")
	}
}

// TestSection: a section names workloads and tags, each once and within bounds.
func TestSection(t *testing.T) {
	n := store.FindingChange{Repository: "docker.io/library/nginx", Finding: finding.Finding{ID: "CVE-2026-0001", Severity: finding.High, Package: finding.Package{Name: "lib"}}}
	for i := range 12 {
		for _, container := range []string{"a", "b"} {
			n.Workloads = append(n.Workloads, store.Workload{
				Namespace: "shop", Kind: "Deployment", Name: fmt.Sprintf("app-%02d", i), Container: container,
				Repository: n.Repository, Reference: fmt.Sprintf("nginx:1.%d", 10+i%2),
			})
		}
	}
	s := newSection([]store.FindingChange{n, n}, false)
	if len(s.Workloads) != 10 || s.MoreWorkloads != 2 || s.Workloads[0] != "Deployment shop/app-00" {
		t.Errorf("workloads %v and %d more, want 10 and 2", s.Workloads, s.MoreWorkloads)
	}
	if diff := cmp.Diff([]string{"1.10", "1.11"}, s.References); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

// TestHostileNames: whatever names an image contains, the message can be encoded and is small enough. What is recorded as announced has the
// unshortened names.
func TestHostileNames(t *testing.T) {
	huge := strings.Repeat("\x00é\u202e<!channel>\x1b", 300)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("%d-%s", i, huge))
	}
	s := afterBaseline(t)
	for i := range 60 {
		name := names[i%30]
		s.findings[name] = append(s.findings[name], finding.Finding{
			ID: fmt.Sprintf("CVE-%d-%s", i, huge), Severity: finding.Critical, URL: "https://" + huge,
			Package: finding.Package{Name: huge, Version: huge}, FixState: finding.FixStateFixed, FixVersions: []string{huge, huge},
		})
	}
	for _, name := range names {
		s.image(name, image.Scanned)
		s.setUsed(name, store.Workload{Namespace: huge, Kind: huge, Name: huge, Repository: name, Reference: huge})
	}
	s.settings.Notices, s.settings.ReadMore = true, huge
	for i := range 100 {
		s.coverage.Notices = append(s.coverage.Notices, Notice{
			ID: strconv.Itoa(i), Kind: NoticeExceptionExpires, Since: time.Unix(1<<60, 0), Reason: huge, Name: huge, Detail: huge, Examples: names,
		})
	}
	s.dispatch()
	d := single(t, s.dispatchNext())
	encoded, err := json.Marshal(Delivery{Message: d})
	if err != nil || len(encoded) > MaxDeliveryBytes/4 {
		t.Errorf("%d bytes, error %v; want no error and at most %d", len(encoded), err, MaxDeliveryBytes/4)
	}
	if n := s.notAnnounced(); n != 0 || len(d.Sections) != maxSections {
		t.Errorf("%d findings are not announced after %d sections, want none after %d", n, len(d.Sections), maxSections)
	}
}

// TestNumbersThatCannotBeEncoded: values that JSON cannot encode, such as NaN and years beyond 9999, are left out.
func TestNumbersThatCannotBeEncoded(t *testing.T) {
	never := time.Unix(1<<60, 0)
	n := store.FindingChange{Finding: finding.Finding{EPSS: math.NaN()}, FirstSeen: never, FixSince: never, ExploitedSince: never}
	if _, err := json.Marshal(newItem(n)); err != nil {
		t.Error(err)
	}
}

// TestTooMuchAtOnce: if there are more than maxChanges changes, whole repositories wait for the next message.
func TestTooMuchAtOnce(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanAll
	s.addFindings("a", finding.High, 1, maxChanges-10)
	s.addFindings("b", finding.High, 1, 20)
	s.dispatch()
	if d := single(t, s.dispatchNext()); d.Totals.High != maxChanges-10 {
		t.Errorf("the message counts %d findings, want all %d of a", d.Totals.High, maxChanges-10)
	}
	d := single(t, s.dispatchNext())
	if d.Sections[0].Repository != "b" || d.Sections[0].Totals.High != 20 {
		t.Errorf("next message %+v, want all of b", d.Sections[0])
	}
	s.wantIdle()
}

func ids(items []Item) []string {
	var all []string
	for _, i := range items {
		all = append(all, i.ID)
	}
	return all
}

// TestSettledRepositories: a finding can only be fixed where the content of every running image is known.
func TestSettledRepositories(t *testing.T) {
	used := func(repository string, state image.State, recent bool) Image {
		return Image{Key: repository + string(state), Repositories: []string{repository}, State: state, Recent: recent}
	}
	c := Coverage{
		Images: []Image{
			used("scanned", image.Scanned, false), used("pending", image.Pending, false), used("ended", image.Scanned, true),
			used("excluded", image.Scanned, false),
		},
		UnknownRepositories: []string{"excluded", "unknown"},
	}
	if diff := cmp.Diff([]string{"scanned"}, c.runningCompleteRepositories()); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
}
