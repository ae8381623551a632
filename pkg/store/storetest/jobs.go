package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func catalogJob(f fixture, name, uid string) store.Job {
	return store.Job{Namespace: "operator", Name: name, UID: uid, Purpose: store.JobCatalog, Key: key("app"), Scope: "shop", CreatedAt: f.clock.Now()}
}

func (on suite) testAJobIsRecordedBeforeItIsMade(t *testing.T) {
	f := on.newStore(t)
	must(t, f.SaveJob(t.Context(), catalogJob(f, "catalog-1", "")))
	equal(t, "live jobs", got[[]store.Job](t)(f.LiveJobs(t.Context())), []store.Job{catalogJob(f, "catalog-1", "")})
	for _, uid := range []string{"", "uid-1"} {
		if _, err := f.JobByUID(t.Context(), uid); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("job %q before it has a UID: got %v, want ErrNotFound", uid, err)
		}
	}
	must(t, f.SaveJob(t.Context(), store.Job{Namespace: "operator", Name: "catalog-1", UID: "uid-1"}))
	equal(t, "the job by UID", got[store.Job](t)(f.JobByUID(t.Context(), "uid-1")), catalogJob(f, "catalog-1", "uid-1"))
	// A restarted manager records its intention again before it finds the Job.
	must(t, f.SaveJob(t.Context(), catalogJob(f, "catalog-1", "")))
	equal(t, "the job once more", got[store.Job](t)(f.JobByUID(t.Context(), "uid-1")), catalogJob(f, "catalog-1", "uid-1"))
}

func (on suite) testLiveJobsAreOrderedByAge(t *testing.T) {
	f := on.newStore(t)
	var want []store.Job
	for _, name := range []string{"c", "a", "b"} {
		job := store.Job{Namespace: "operator", Name: name, UID: "uid " + name, Purpose: store.JobMatch, CreatedAt: f.clock.Now()}
		must(t, f.SaveJob(t.Context(), job))
		want = append(want, job)
		f.clock.pass(time.Second)
	}
	equal(t, "live jobs", got[[]store.Job](t)(f.LiveJobs(t.Context())), want)
}

func (on suite) testJobIsClaimedByFirstPod(t *testing.T) {
	f := on.newStore(t)
	must(t, f.SaveJob(t.Context(), catalogJob(f, "catalog-1", "uid-1")))
	want := catalogJob(f, "catalog-1", "uid-1")
	want.PodUID = "pod-1"
	for range 2 {
		equal(t, "the claimed job", got[store.Job](t)(f.ClaimJob(t.Context(), "uid-1", "pod-1")), want)
	}
	if _, err := f.ClaimJob(t.Context(), "uid-1", "pod-2"); !errors.Is(err, store.ErrForeignPod) {
		t.Errorf("another pod: got %v, want ErrForeignPod", err)
	}
	if _, err := f.ClaimJob(t.Context(), "uid-2", "pod-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another job: got %v, want ErrNotFound", err)
	}
	if _, err := f.ClaimJob(t.Context(), "uid-1", ""); err == nil {
		t.Error("no pod: got no error")
	}
}

func (on suite) testRecreatedJobIsAnotherJob(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	f.use(t, "scanner", "app")
	must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: "uid-1", Purpose: store.JobMatch}))
	got[store.Job](t)(f.ClaimJob(t.Context(), "uid-1", "pod-1"))
	lease := f.lease(t, "uid-1")[0]
	must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: "uid-2", Purpose: store.JobMatch}))
	if _, err := f.ClaimJob(t.Context(), "uid-1", "pod-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the former job: got %v, want ErrNotFound", err)
	}
	if _, err := f.Lease(t.Context(), lease.ID, "uid-1", f.clock.Now()); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("the former job's lease: got %v, want ErrLeaseEnded", err)
	}
	if job, err := f.ClaimJob(t.Context(), "uid-2", "pod-2"); err != nil || job.PodUID != "pod-2" {
		t.Errorf("the new job's pod: got %+v, %v, want that it has the job", job, err)
	}
}

func (on suite) testDeletedJobsHaveNoRecord(t *testing.T) {
	f := on.newStore(t)
	must(t, f.SaveJob(t.Context(), catalogJob(f, "catalog-1", "uid-1")))
	for range 2 {
		must(t, f.DeleteJob(t.Context(), "operator", "catalog-1"))
	}
	if _, err := f.JobByUID(t.Context(), "uid-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// testEndedJobsMayDoNothing checks that an ended Job may do nothing, and that its record stays until it is deleted, so that its
// pod is known.
func (on suite) testEndedJobsMayDoNothing(t *testing.T) {
	f := on.newStore(t)
	job := catalogJob(f, "catalog-1", "uid-1")
	job.Scanner, job.Memory, job.MaxMemory = "scanner", 2<<30, 8<<30
	must(t, f.SaveJob(t.Context(), job))
	got[store.Job](t)(f.ClaimJob(t.Context(), "uid-1", "pod-1"))
	f.clock.pass(time.Minute)
	ended := f.clock.Now()
	for _, failed := range []bool{true, false} { // the first end counts
		must(t, f.EndJob(t.Context(), "operator", "catalog-1", ended, failed))
		f.clock.pass(time.Minute)
	}
	must(t, f.EndJob(t.Context(), "operator", "unknown", ended, true))
	if _, err := f.JobByUID(t.Context(), "uid-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("by its UID: got %v, want ErrNotFound", err)
	}
	if _, err := f.ClaimJob(t.Context(), "uid-1", "pod-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("its own pod speaks for it: got %v, want ErrNotFound", err)
	}
	equal(t, "live jobs", got[[]store.Job](t)(f.LiveJobs(t.Context())), []store.Job(nil))
	job.EndedAt, job.Failed = ended, true
	equal(t, "ended jobs", got[[]store.Job](t)(f.EndedJobs(t.Context())), []store.Job{job})
	equal(t, "it is recorded", got[bool](t)(f.IsRecorded(t.Context(), "operator", "catalog-1", "uid-1")), true)
	must(t, f.DeleteJob(t.Context(), "operator", "catalog-1"))
	equal(t, "it is recorded after its deletion", got[bool](t)(f.IsRecorded(t.Context(), "operator", "catalog-1", "uid-1")), false)
}

func (on suite) testEndedMatchJobsHoldNoLease(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	f.use(t, "scanner", "app")
	must(t, f.SaveJob(t.Context(), store.Job{Name: "match", UID: "uid-1", Purpose: store.JobMatch}))
	lease := f.lease(t, "uid-1")[0]
	must(t, f.EndJob(t.Context(), "", "match", f.clock.Now(), true))
	if _, err := f.Lease(t.Context(), lease.ID, "uid-1", f.clock.Now()); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("got %v, want ErrLeaseEnded", err)
	}
}

func (on suite) testEndedJobsAreOrderedLatestFirst(t *testing.T) {
	f := on.newStore(t)
	for _, name := range []string{"c", "a", "b"} {
		must(t, f.SaveJob(t.Context(), catalogJob(f, name, "uid "+name)))
	}
	var names []string
	for _, name := range []string{"a", "c", "b"} {
		f.clock.pass(time.Second)
		must(t, f.EndJob(t.Context(), "operator", name, f.clock.Now(), false))
	}
	for _, job := range got[[]store.Job](t)(f.EndedJobs(t.Context())) {
		names = append(names, job.Name)
	}
	equal(t, "ended jobs", names, []string{"b", "c", "a"})
}

// testScannerNamespaceOfJob checks that a Job counts for the namespace of its Scanner or, if that one no longer has the image, for that of
// another Scanner that has it. Deleting a Scanner must not relieve its namespace's account while another Scanner there has the
// image.
func (on suite) testScannerNamespaceOfJob(t *testing.T) {
	f := on.newStore(t)
	job := catalogJob(f, "catalog-1", "uid-1")
	job.Scanner = "second"
	must(t, f.SaveJob(t.Context(), job))
	whose := func() string { return got[store.Job](t)(f.JobByUID(t.Context(), "uid-1")).ScannerNamespace }
	equal(t, "the namespace while nobody has the image", whose(), "")
	for i, scanner := range []string{"first", "second", "third"} {
		u := used(scanner, "app")
		u.Scope, u.Namespace = "shop", []string{"blog", "shop", "bank"}[i]
		must(t, f.SetUsage(t.Context(), u))
	}
	other := used("second", "another")
	other.Scope, other.Namespace = "shop", "elsewhere"
	must(t, f.SetUsage(t.Context(), other))
	equal(t, "the namespace while its Scanner has the image", whose(), "shop")
	must(t, f.DeleteScanners(t.Context(), []string{"second"}))
	equal(t, "the namespace when others have it", whose(), "blog")
}

// testRecordedJobs checks that a Job is known by its name only until its UID is recorded: another Job of that name is not
// accepted.
func (on suite) testRecordedJobs(t *testing.T) {
	f := on.newStore(t)
	must(t, f.SaveJob(t.Context(), catalogJob(f, "intent", "")))
	must(t, f.SaveJob(t.Context(), catalogJob(f, "made", "uid-1")))
	for _, c := range []struct {
		namespace, name, uid string
		want                 bool
	}{
		{"operator", "intent", "any", true}, {"shop", "intent", "any", false}, {"operator", "made", "uid-1", true},
		{"operator", "made", "another", false}, {"operator", "unknown", "unknown", false},
	} {
		equal(t, c.namespace+"/"+c.name+" with the UID "+c.uid+" is recorded", got[bool](t)(f.IsRecorded(t.Context(), c.namespace, c.name, c.uid)), c.want)
	}
}
