package notify

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestGrouping: findings within groupWait go into one message, and two messages are groupInterval apart.
func TestGrouping(t *testing.T) {
	s := begun(t, "web")
	s.find("web", finding.High, 1, 1)
	none(t, s.visit(), "groupWait")
	s.wantNext(30 * time.Second)
	s.pass(20 * time.Second)
	s.find("web", finding.Critical, 2, 1)
	none(t, s.visit(), "groupWait counts from the first finding")
	s.wantNext(10 * time.Second)
	d := only(t, s.next())
	want := []string{"CVE-2026-0002", "CVE-2026-0001"}
	if got := ids(d.Sections[0].Items); !cmp.Equal(want, got) {
		t.Errorf("items %v, want both, worst first: %v", got, want)
	}
	s.pass(time.Minute)
	s.find("web", finding.High, 3, 1)
	none(t, s.visit(), "groupInterval")
	s.wantNext(4 * time.Minute)
	only(t, s.next())
	s.wantIdle()
}

// TestFixedWhileWaiting: what has gone before the message is sent is not told.
func TestFixedWhileWaiting(t *testing.T) {
	s := begun(t, "web")
	s.find("web", finding.High, 1, 1)
	s.visit()
	clear(s.ledger.present)
	none(t, s.next(), "there is nothing left to tell")
	s.wantIdle()
	if !s.last.After.PendingSince.IsZero() || s.last.After.Pending != 0 {
		t.Errorf("pending %d since %s, want nothing", s.last.After.Pending, s.last.After.PendingSince)
	}
}

// TestManyRepositories: the worst eight are told, the others in the next message.
func TestManyRepositories(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("app-%d", i))
	}
	s := begun(t, names...)
	for i, name := range names {
		s.find(name, finding.High, i, 1)
	}
	s.find("app-9", finding.Critical, 100, 1)
	s.visit()
	d := only(t, s.next())
	if len(d.Sections) != 8 || d.Images != 8 || d.MoreSections != 2 || d.Sections[0].Repository != "app-9" || d.Totals.Total() != 9 {
		t.Errorf("%d sections, first %s, %d more, %d findings; want 8, app-9, 2 and 9", len(d.Sections), d.Sections[0].Repository, d.MoreSections, d.Totals.Total())
	}
	if s.last.After.Pending != 2 {
		t.Errorf("%d findings are pending, want 2", s.last.After.Pending)
	}
	s.wantNext(5 * time.Minute)
	if d := only(t, s.next()); len(d.Sections) != 2 || d.MoreSections != 0 {
		t.Errorf("%d sections and %d more in the next message, want 2 and 0", len(d.Sections), d.MoreSections)
	}
}

// TestManyFindings: ten are listed, all are counted, and all count as told.
func TestManyFindings(t *testing.T) {
	s := begun(t, "web")
	s.find("web", finding.High, 1, 25)
	s.visit()
	section := only(t, s.next()).Sections[0]
	if len(section.Items) != 10 || section.MoreItems != 15 || section.Totals.High != 25 {
		t.Errorf("%d items, %d more, %d in all; want 10, 15 and 25", len(section.Items), section.MoreItems, section.Totals.High)
	}
	s.wantIdle()
}

// TestNewRepository: an image that appears later is summed up, an image that was clean is known.
func TestNewRepository(t *testing.T) {
	s := begun(t, "web")
	s.find("db", finding.High, 1, 6)
	s.image("cache", ImageScanned)
	s.visit()
	section := only(t, s.next()).Sections[0]
	if !section.FirstTime || len(section.Items) != 3 || section.MoreItems != 3 {
		t.Errorf("section %+v, want a first-time section with the worst 3", section)
	}
	s.pass(time.Hour)
	s.find("cache", finding.High, 1, 1)
	s.visit()
	if section := only(t, s.next()).Sections[0]; section.FirstTime {
		t.Error("cache was scanned before without findings; want its first finding as plain news")
	}
}

// TestHalfScannedRepository: as long as an image of a repository has no result, the repository is not known as clean.
func TestHalfScannedRepository(t *testing.T) {
	s := begun(t, "web")
	s.coverage.Images = append(s.coverage.Images,
		Image{Key: "1", Repositories: []string{"db"}, State: ImageScanned}, Image{Key: "2", Repositories: []string{"db"}, State: ImagePending})
	s.visit()
	if s.ledger.heard["db"] {
		t.Error("db is taken for known while one of its images is pending")
	}
	s.coverage.Images[len(s.coverage.Images)-1].State = ImageScanned
	s.visit()
	if !s.ledger.heard["db"] {
		t.Error("db is not known though all its images have a result")
	}
}

// TestSection: who runs it and by which tags, each once and within bounds.
func TestSection(t *testing.T) {
	n := store.News{Repository: "docker.io/library/nginx", Finding: finding.Finding{ID: "CVE-2026-0001", Severity: finding.High, Package: finding.Package{Name: "lib"}}}
	for i := range 12 {
		for _, container := range []string{"a", "b"} {
			n.Workloads = append(n.Workloads, store.Workload{
				Namespace: "shop", Kind: "Deployment", Name: fmt.Sprintf("app-%02d", i), Container: container,
				Repository: n.Repository, Reference: fmt.Sprintf("nginx:1.%d", 10+i%2),
			})
		}
	}
	s := newSection([]store.News{n, n}, false)
	if len(s.Workloads) != 10 || s.MoreWorkloads != 2 || s.Workloads[0] != "Deployment shop/app-00" {
		t.Errorf("workloads %v and %d more, want 10 and 2", s.Workloads, s.MoreWorkloads)
	}
	if diff := cmp.Diff([]string{"1.10", "1.11"}, s.References); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

// TestHostileNames: whatever an image calls its packages, the message can be encoded and is small enough, and
// what is recorded as told is the real name.
func TestHostileNames(t *testing.T) {
	s := begun(t, "web")
	huge := strings.Repeat("\x00é", 10_000)
	for i := range 100 {
		f := finding.Finding{
			ID: fmt.Sprintf("CVE-%d-%s", i, huge), Severity: finding.Critical, EPSS: math.NaN(), URL: "https://" + huge,
			Package: finding.Package{Name: huge, Version: huge}, FixState: finding.FixStateFixed, FixVersions: []string{huge, huge},
		}
		s.ledger.present[store.AnnouncementKey{Repository: "web", ID: f.ID, Package: huge}] = store.News{
			Repository: "web", Finding: f, FirstSeen: time.Unix(1<<60, 0), Workloads: []store.Workload{{Kind: huge, Name: huge, Repository: "web", Reference: huge}},
		}
	}
	s.visit()
	encoded, err := json.Marshal(Delivery{Digest: only(t, s.next())})
	if err != nil || len(encoded) > MaxDeliveryBytes/4 {
		t.Errorf("%d bytes, error %v; want no error and at most %d", len(encoded), err, MaxDeliveryBytes/4)
	}
	s.wantIdle()
}

// TestTooMuchAtOnce: beyond the limit of findings that are looked at together, whole repositories wait.
func TestTooMuchAtOnce(t *testing.T) {
	s := newStory(t)
	s.settings.FirstScan = FirstScanAll
	s.find("a", finding.High, 1, newsLimit-10)
	s.find("b", finding.High, 1, 20)
	s.visit()
	if d := only(t, s.next()); d.Totals.High != newsLimit-10 {
		t.Errorf("the message counts %d findings, want all %d of a", d.Totals.High, newsLimit-10)
	}
	d := only(t, s.next())
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
