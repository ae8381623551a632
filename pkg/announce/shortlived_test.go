package announce

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// until visits as the controller does, at once and whenever a visit is due, until a time.
func (s *scenario) until(end time.Time) {
	s.t.Helper()
	for s.dispatch(); !s.last.Next.IsZero() && s.last.Next.Before(end); {
		s.dispatchNext()
	}
	s.now = end
}

// starts runs the image of a repository in a CronJob. completes is store.Workload.Completes.
func (s *scenario) starts(repository string, completes bool) {
	s.t.Helper()
	s.image(repository, image.Scanned)
	w := store.Workload{Namespace: "shop", Kind: "CronJob", Name: "job", Container: "c", Repository: repository, Reference: repository + ":1.0", Completes: completes}
	s.setUsed(repository, w)
}

// ends removes the pods that run the image of a repository. If completes is true, the image stays in use for a while.
func (s *scenario) ends(repository string, completes bool) {
	s.t.Helper()
	i := slices.IndexFunc(s.coverage.Images, func(i Image) bool { return i.Repositories[0] == repository })
	img := s.coverage.Images[i]
	s.removeFromCoverage(repository)
	if img.Recent = true; completes {
		s.coverage.Images = append(s.coverage.Images, img)
	}
	s.must(s.store.SetUsage(context.Background(), store.ImageUsage{Scanner: scannerUID, Namespace: "shop", Key: keyOf(repository), Engine: grype}))
}

// matched saves a report with one critical finding for the image of a repository, whether it runs or not.
func (s *scenario) matched(repository string, changes ...func(*finding.Finding)) {
	s.t.Helper()
	f := finding.Finding{
		ID: "CVE-2026-0001", Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"},
		FixState: finding.FixStateFixed, FixVersions: []string{"2"},
	}
	for _, change := range changes {
		change(&f)
	}
	s.findings[repository] = []finding.Finding{f}
	s.report(repository)
}

// TestShortLivedPodsAreAnnounced: a finding is announced once, whether the pods live longer than groupWait or not, and whether they
// complete or are deleted.
func TestShortLivedPodsAreAnnounced(t *testing.T) {
	for name, tt := range map[string]struct {
		lives     time.Duration
		completes bool
		within    time.Duration
	}{
		"each pod lives 40s":                {40 * time.Second, true, time.Minute},
		"each pod lives 20s":                {20 * time.Second, true, time.Minute},
		"each pod is deleted after 20s":     {20 * time.Second, false, time.Hour + time.Minute},
		"each pod is deleted after a third": {time.Second / 3, false, time.Hour + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.pass(time.Hour)
			began := s.now
			for range 48 {
				s.starts("job", tt.completes)
				s.matched("job", func(f *finding.Finding) { f.KnownExploited = true })
				s.until(s.now.Add(tt.lives))
				s.ends("job", tt.completes)
				s.until(s.now.Add(time.Hour - tt.lives))
			}
			if d := single(t, s.sent); d.CreatedAt.After(began.Add(tt.within)) {
				t.Errorf("announced after %s, want within %s", d.CreatedAt.Sub(began), tt.within)
			}
		})
	}
}

// TestChangesOfEndedImages: a change between two runs of an image is announced when it is found.
func TestChangesOfEndedImages(t *testing.T) {
	for change, modify := range map[diff.Change]func(before, after *finding.Finding){
		diff.ChangeNew:          func(_, after *finding.Finding) { after.ID = "CVE-2026-0002" },
		diff.ChangeFixAvailable: func(before, _ *finding.Finding) { before.FixState, before.FixVersions = finding.FixStateNotFixed, nil },
		diff.ChangeEscalated:    func(_, after *finding.Finding) { after.KnownExploited = true },
	} {
		t.Run(string(change), func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.pass(time.Hour)
			s.starts("job", true)
			s.matched("job", func(f *finding.Finding) { modify(f, &finding.Finding{}) })
			s.dispatchUntilIdle()
			s.ends("job", true)
			s.pass(time.Hour)
			sent := len(s.sent)
			s.matched("job", func(f *finding.Finding) { modify(&finding.Finding{}, f) })
			s.dispatchUntilIdle()
			d := single(t, s.sent[sent:])
			if d.Changes[change] != 1 {
				t.Errorf("changes %v, want one %s", d.Changes, change)
			}
		})
	}
}

// TestRolloutEndsUse: the findings of an image are not announced after its workload has run another image of the repository, even if that
// one has ended too.
func TestRolloutEndsUse(t *testing.T) {
	s := afterBaseline(t, "web")
	s.pass(time.Hour)
	s.starts("job", true)
	s.dispatchUntilIdle()
	s.ends("job", true)
	other := store.ImageUsage{
		Scanner: scannerUID, Namespace: "shop", Key: keyOf("job, rolled out"), Engine: grype,
		Workloads: []store.Workload{{Namespace: "shop", Kind: "CronJob", Name: "job", Container: "c", Repository: "job", Reference: "job:2.0", Completes: true}},
	}
	for range 2 {
		s.pass(time.Hour)
		s.must(s.store.SetUsage(context.Background(), other))
		s.matched("job")
		s.dispatchUntilIdle()
		none(t, s.sent, "the CronJob runs another image")
		other.Workloads = nil
	}
}

// TestEndedImagesFixNothing: a finding is not fixed because its image has ended. Nor is it fixed by another image that runs, as long as an
// ended image has the finding or has no result. It is fixed when the ended image is not in use any more.
func TestEndedImagesFixNothing(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixed}
	s.pass(time.Hour)
	s.starts("job", true)
	s.matched("job")
	s.dispatchUntilIdle()
	single(t, s.sent)
	s.ends("job", true)
	s.pass(time.Hour)
	s.dispatchUntilIdle()
	// Another workload runs a clean image of the same repository.
	s.image("clean", image.Scanned)
	s.coverage.Images[len(s.coverage.Images)-1].Repositories = []string{"job"}
	s.setUsed("clean", store.Workload{Namespace: "shop", Kind: "Deployment", Name: "web", Container: "c", Repository: "job", Reference: "job:2.0"})
	s.dispatchUntilIdle()
	single(t, s.sent)
	// The ended image is gone, and another one has ended that has no result yet.
	s.must(s.store.ReleaseImage(context.Background(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: keyOf("job")}, false))
	for i := range s.coverage.Images {
		if s.coverage.Images[i].Recent {
			s.coverage.Images[i].Key, s.coverage.Images[i].State = "another", image.Pending
		}
	}
	s.pass(time.Hour)
	s.dispatchUntilIdle()
	single(t, s.sent)
	s.coverage.Images = slices.DeleteFunc(s.coverage.Images, func(i Image) bool { return i.Recent })
	s.dispatchUntilIdle()
	if len(s.sent) != 2 || s.sent[1].Changes[diff.ChangeFixed] != 1 {
		t.Errorf("messages %+v, want one more: that the finding is fixed", s.sent)
	}
}

// TestSummaryHasEndedImages: the first summary includes images that ended recently, so that their findings are not announced as new.
func TestSummaryHasEndedImages(t *testing.T) {
	s := newScenario(t)
	s.starts("job", true)
	s.matched("job")
	s.ends("job", true)
	s.dispatchUntilIdle()
	if d := single(t, s.sent); d.Kind != KindFirstScan || d.Totals.Critical != 1 || len(d.Worst) != 1 {
		t.Errorf("message %+v, want a summary with the finding", d)
	}
}
