package grype

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestReconcileCatalogJobs: the states and ends of a catalog Job, and what follows from each. Each reason is shown within two minutes of its
// cause.
func TestReconcileCatalogJobs(t *testing.T) {
	web := private("web", "pull")
	const runs, removed, kept = "it runs", "it is removed", "it is kept to be looked at"
	for name, tt := range map[string]struct {
		happens func(e *engine, job *batchv1.Job)
		// says is what Index then returns for the image. woken is whether its ImageScans are woken.
		says  string
		woken bool
		job   string
	}{
		"it runs": {func(*engine, *batchv1.Job) {}, v1alpha1.ReasonCataloging, false, runs},
		"it brought its result and ended": {func(e *engine, job *batchv1.Job) {
			e.saveCatalog(web)
			e.setEndCondition(job, batchv1.JobComplete, "", "")
		}, "done", true, removed},
		"it brought its result and has not ended": {func(e *engine, _ *batchv1.Job) { e.saveCatalog(web) }, "done", false, runs},
		"it brought its result and failed after that": {func(e *engine, job *batchv1.Job) {
			e.saveCatalog(web)
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "done", true, removed},
		"it ended well and brought nothing": {func(e *engine, job *batchv1.Job) {
			e.setEndCondition(job, batchv1.JobComplete, "", "")
		}, "failure UploadMissing", true, kept},
		"its worker says what went wrong": {func(e *engine, job *batchv1.Job) {
			e.pod(job, terminated(1, "Error", `{"reason":"Unauthorized","message":"no"}`))
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "failure Unauthorized", true, kept},
		"the ingest API refused its upload": {func(e *engine, job *batchv1.Job) {
			e.pod(job, terminated(1, "Error", `{"reason":"UploadRefused","message":"413 Request Entity Too Large"}`))
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "failure UploadRefused", true, kept},
		"it took too long, and its pod is gone": {func(e *engine, job *batchv1.Job) {
			e.setEndCondition(job, batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "")
		}, "failure DeadlineExceeded", true, kept},
		"it took too long, and its worker was stopped": {func(e *engine, job *batchv1.Job) {
			e.pod(job, terminated(1, "Error", `{"reason":"CatalogFailed","message":"context canceled"}`))
			e.setEndCondition(job, batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "")
		}, "failure DeadlineExceeded", true, kept},
		"it took too long, and somebody took its deadline away": {func(e *engine, job *batchv1.Job) {
			job.Spec.ActiveDeadlineSeconds = nil
			e.must(e.cluster.Update(e.t.Context(), job))
			e.pod(job, runningOn("node"))
			e.advance(e.Config.Grype.Catalog.Deadline.Duration + slowStartTimeout)
		}, "failure DeadlineExceeded", true, removed},
		"it took too long, and its worker's end is said to be to come": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"), terminated(0, "Completed", ""), func(pod *corev1.Pod) {
				pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.Time{Time: noon.AddDate(1, 0, 0)}
			})
			e.advance(e.Config.Grype.Catalog.Deadline.Duration + slowStartTimeout)
		}, "failure DeadlineExceeded", true, removed},
		"it may take a moment longer": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"))
			e.advance(e.Config.Grype.Catalog.Deadline.Duration + slowStartTimeout - 1)
		}, v1alpha1.ReasonCataloging, false, runs},
		"it failed without a word": {func(e *engine, job *batchv1.Job) {
			e.pod(job, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
		}, "failure WorkerCrashed", true, kept},

		"no pod is made for it, a moment":        {func(e *engine, _ *batchv1.Job) { e.advance(firstCheckAge - 1) }, v1alpha1.ReasonCataloging, false, runs},
		"no pod is made for it, nobody says why": {func(e *engine, _ *batchv1.Job) { e.advance(firstCheckAge) }, backend.ReasonNoPod, true, runs},
		"no pod is made for it, a minute":        {func(e *engine, _ *batchv1.Job) { e.advance(startTimeout) }, "failure NoPod", true, removed},
		"a quota keeps its pod away": {func(e *engine, job *batchv1.Job) {
			e.event(job, `Error creating: pods "x" is forbidden: exceeded quota: compute`)
			e.advance(firstCheckAge)
		}, backend.ReasonResourceQuota, true, runs},
		"its ServiceAccount is missing": {func(e *engine, job *batchv1.Job) {
			e.event(job, `Error creating: pods "x" is forbidden: error looking up service account shop/scanner-operator-catalog: serviceaccount "scanner-operator-catalog" not found`)
			e.advance(firstCheckAge)
		}, backend.ReasonAccountMissing, true, runs},
		"a quota keeps its pod away for a minute": {func(e *engine, job *batchv1.Job) {
			e.event(job, `Error creating: pods "x" is forbidden: exceeded quota: compute`)
			e.advance(startTimeout)
		}, "failure ResourceQuota", true, removed},
		"its worker's image is not there, a moment": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending, waiting("ErrImagePull", "404"))
			e.advance(firstCheckAge)
		}, backend.ReasonWorkerNotPulled, true, runs},
		"its worker's image is not there": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending, waiting("ImagePullBackOff", "404"))
			e.advance(startTimeout)
		}, "failure WorkerImageNotPulled", true, removed},
		"no node has room, a moment": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending, unschedulable)
			e.advance(firstCheckAge)
		}, backend.ReasonUnschedulable, true, runs},
		"no node has room for minutes": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending, unschedulable)
			e.advance(slowStartTimeout)
		}, "failure Unschedulable", true, removed},
		"its containers are being created": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending)
			e.advance(startTimeout - time.Second)
		}, v1alpha1.ReasonCataloging, false, runs},
		"its containers are being created for a minute": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending)
			e.advance(slowStartTimeout - time.Second)
		}, backend.ReasonNotStarted, true, runs},
		"its containers are never created": {func(e *engine, job *batchv1.Job) {
			e.pod(job, pending)
			e.advance(slowStartTimeout)
		}, "failure NotStarted", true, removed},
		"it runs for long": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"))
			e.advance(slowStartTimeout)
		}, v1alpha1.ReasonCataloging, false, runs},

		"a sidecar outlives its worker, which brought its result": {func(e *engine, job *batchv1.Job) {
			e.saveCatalog(web)
			e.pod(job, runningOn("node"), terminated(0, "Completed", ""), withSidecar(alive))
			e.advance(endTimeout)
		}, "done", true, removed},
		"a sidecar outlives its worker, which failed": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"), terminated(1, "Error", `{"reason":"ImageNotFound","message":"no"}`), withSidecar(alive))
			e.advance(endTimeout)
		}, "failure ImageNotFound", true, removed},
		"a sidecar outlives its worker, which brought nothing": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"), terminated(0, "Completed", ""), withSidecar(alive))
			e.advance(endTimeout)
		}, "failure UploadMissing", true, removed},
		"a sidecar outlives its worker for a moment": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"), terminated(1, "Error", `{"reason":"ImageNotFound","message":"no"}`), withSidecar(alive))
			e.advance(firstCheckAge)
		}, v1alpha1.ReasonCataloging, false, runs},

		"its pod is evicted": {func(e *engine, job *batchv1.Job) {
			e.pod(job, func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" })
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "failure Evicted", true, kept},
		"its pod is evicted, and gone when the Job fails": {func(e *engine, job *batchv1.Job) {
			pod := e.pod(job, runningOn("node"), lingering, disruption("EvictionByEvictionAPI", "Eviction API: evicting"))
			e.must(e.cluster.Delete(e.t.Context(), pod))
			e.advance(firstCheckAge)
			e.runJobsOnce()
			e.must(e.cluster.Get(e.t.Context(), client.ObjectKeyFromObject(pod), pod))
			pod.Finalizers = nil
			e.must(e.cluster.Update(e.t.Context(), pod))
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "failure Evicted", true, kept},
		"somebody deleted its pod": {func(e *engine, job *batchv1.Job) {
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "failure PodDeleted", true, kept},
		"its node is lost": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Create(e.t.Context(), node("node", corev1.ConditionUnknown)))
			e.pod(job, runningOn("node"), unready)
			e.advance(firstCheckAge)
		}, "failure NodeLost", true, removed},
		"its node is deleted": {func(e *engine, job *batchv1.Job) {
			e.pod(job, runningOn("node"), unready)
			e.advance(firstCheckAge)
		}, "failure NodeLost", true, removed},
		"a sidecar of it is not ready": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Create(e.t.Context(), node("node", corev1.ConditionTrue)))
			e.pod(job, runningOn("node"), unready)
			e.advance(firstCheckAge)
		}, v1alpha1.ReasonCataloging, false, runs},
		"it hangs on a lost node": {func(e *engine, job *batchv1.Job) {
			pod := e.pod(job, runningOn("node"), lingering)
			e.must(e.cluster.Delete(e.t.Context(), pod))
			e.clock.SetTime(time.Now().Add(endTimeout))
		}, "failure PodDeleted", true, removed},

		"somebody deleted it": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Delete(e.t.Context(), job))
		}, "failure JobDeleted", true, removed},
		"somebody made another one of its name": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Delete(e.t.Context(), job))
			other := job.DeepCopy()
			other.UID, other.ResourceVersion, other.Labels = "another-uid", "", nil
			e.must(e.cluster.Create(e.t.Context(), other))
		}, "failure JobDeleted", true, removed},
		"its namespace is being deleted": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Delete(e.t.Context(), namespace("shop")))
			e.must(e.cluster.Delete(e.t.Context(), job))
			e.onCreate = func(client.Object) error {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
			}
		}, v1alpha1.ReasonPending, true, removed},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.setUsed(web)
			e.index(web)
			job := e.job("catalog")
			e.woken = nil
			tt.happens(e, job)
			e.runJobsOnce()
			got := runs
			if len(e.jobs("catalog")) == 0 {
				got = removed
			} else if contains(e.records(), job.Name+"!") {
				got = kept
			}
			if got != tt.job {
				t.Errorf("what becomes of the Job: %s, want that %s", got, tt.job)
			}
			if known := contains(e.records(), job.Name) || contains(e.records(), job.Name+"!"); known != (tt.job != removed) {
				t.Errorf("records %q, though %s", e.records(), got)
			}
			if woken := contains(e.woken, web.Key.Digest); woken != tt.woken {
				t.Errorf("its ImageScans are woken: %v, want %v", woken, tt.woken)
			}
			if got := e.index(web); got != tt.says {
				t.Errorf("the image's state is %q, want %q", got, tt.says)
			}
		})
	}
}

var alive = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

func runningOn(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning }
}

// unready adds the condition that the control plane sets on pods whose node does not report.
func unready(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
}

// lingering has a pod remain after its deletion.
func lingering(pod *corev1.Pod) { pod.Finalizers = []string{batchv1.JobTrackingFinalizer} }

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// event creates the event of the Job controller that it cannot create a Job's pod.
func (e *engine) event(job *batchv1.Job, message string) {
	e.t.Helper()
	e.must(e.cluster.Create(e.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: job.Namespace, GenerateName: job.Name + "."},
		InvolvedObject: corev1.ObjectReference{Kind: "Job", Namespace: job.Namespace, Name: job.Name, UID: job.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedCreate", Message: message, LastTimestamp: metav1.Time{Time: e.clock.Now()},
	}))
}

func pending(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// TestForeignJobIsIgnored: a Job with a recorded name but another UID is not the operator's, and is not changed.
func TestForeignJobIsIgnored(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("web"))
	e.index(public("web"))
	job := e.job("catalog")
	e.must(e.cluster.Delete(t.Context(), job))
	foreign := job.DeepCopy()
	foreign.UID, foreign.ResourceVersion = "foreign", ""
	e.must(e.cluster.Create(t.Context(), foreign))
	e.runJobsOnce()
	if got := e.job("catalog").UID; got != "foreign" {
		t.Errorf("the Job there has the UID %s, want the foreign one", got)
	}
}

// TestOrphanedIntent: the manager stopped between recording a Job and creating it, or before it recorded the UID.
func TestOrphanedIntent(t *testing.T) {
	for name, made := range map[string]bool{"the Job was not made": false, "the Job was made": true} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.setUsed(public("web"))
			job := e.catalogJob("scan-catalog-x", public("web"), 0)
			e.must(e.Store.SaveJob(t.Context(), store.Job{
				Namespace: job.Namespace, Name: job.Name, Purpose: store.JobCatalog, Key: public("web").Key, CreatedAt: noon,
			}))
			if made {
				e.must(e.cluster.Create(t.Context(), job))
			}
			e.advance(creationTimeout - time.Second)
			e.runJobsOnce()
			if diff := cmp.Diff([]string{job.Name + "?"}, e.records()); diff != "" {
				t.Errorf("before a minute is over it may still be on its way (-want +got):\n%s", diff)
			}
			e.advance(time.Second)
			e.runJobsOnce()
			if records := e.records(); len(records) != 0 {
				t.Errorf("records %q after a minute, want none", records)
			}
			if jobs := e.jobs("catalog"); len(jobs) != 0 {
				t.Error("the Job still runs, and nothing that it brings would be taken")
			}
		})
	}
}

// TestJobThatCannotBeDeleted: a Job that was given up frees its slot and loses its access to the ingest API, even if its deletion is
// prevented.
func TestJobThatCannotBeDeleted(t *testing.T) {
	for name, happens := range map[string]func(e *engine){
		"it took too long": func(e *engine) { e.advance(e.Config.Grype.Catalog.Deadline.Duration + slowStartTimeout) },
		"nobody needs it more": func(e *engine) {
			e.must(e.Store.ReleaseImage(e.t.Context(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: key("web")}, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, limits(1, 1))
			web, next := private("web", "pull"), imageOf("another", "next")
			e.setUsed(web, next)
			e.index(web)
			job := e.job("catalog")
			e.pod(job, runningOn("node"))
			e.onDelete = func(client.Object) error {
				return apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, job.Name, errors.New("a policy wants it to stay"))
			}
			happens(e)
			if err := e.reconcileJobs(t.Context()); err == nil {
				t.Error("that it cannot be deleted is not reported")
			}
			if _, err := e.Store.JobByUID(t.Context(), string(job.UID)); err == nil {
				t.Error("the ingest API takes what it brings")
			}
			if got := e.index(next); got != v1alpha1.ReasonCataloging {
				t.Errorf("the next image's state is %q, want the Job's place", got)
			}
			e.onDelete = nil
			e.advance(e.Config.Grype.Catalog.History.TTL.Duration)
			e.runJobsOnce()
			if contains(e.records(), job.Name+"!") {
				t.Error("it is never removed")
			}
		})
	}
}

// TestClockSetBack: a Job recorded before the clock was set back by hours is not waited for longer than others. A correction of
// seconds changes nothing.
func TestClockSetBack(t *testing.T) {
	for name, tt := range map[string]struct {
		back time.Duration
		left int
	}{"by seconds": {20 * time.Second, 2}, "by hours": {5 * time.Hour, 0}} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.setUsed(public("web"), public("api"))
			e.index(public("web")) // its pod is never created
			e.must(e.Store.SaveJob(t.Context(), store.Job{
				Namespace: operatorNamespace, Name: "scan-catalog-x", Purpose: store.JobCatalog, Key: public("api").Key, CreatedAt: e.clock.Now(),
			}))
			e.advance(-tt.back)
			e.runJobsOnce()
			if got := e.records(); len(got) != tt.left {
				t.Errorf("records %q of a Job without a pod and of one that was not made, want %d", got, tt.left)
			}
		})
	}
}

// TestNoLongerNeeded: a Job for an image that no Scanner has any more is removed, and a needed Job is not.
func TestNoLongerNeeded(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("web"), public("api"))
	e.index(public("web"))
	e.index(public("api"))
	e.must(e.Store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: public("web").Key}, false))
	e.runJobsOnce()
	jobs := e.jobs("catalog")
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs are left, want that of the image in use", len(jobs))
	}
	record, err := e.Store.JobByUID(t.Context(), string(jobs[0].UID))
	if err != nil || record.Key != public("api").Key {
		t.Errorf("the Job that is left is for %v, %v", record.Key, err)
	}
	if got := e.index(public("web")); got != v1alpha1.ReasonCataloging {
		t.Errorf("an image that is wanted again gets %q: a Job that was not needed is no failure", got)
	}
}

// TestAPIServerErrors: an API server that fails does not make the Job loop forget a Job. The next run continues.
func TestAPIServerErrors(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("web"))
	e.index(public("web"))
	e.saveCatalog(public("web"))
	job := e.job("catalog")
	e.setEndCondition(job, batchv1.JobComplete, "", "")
	e.onDelete = func(client.Object) error { return errors.New("no answer") }
	if err := e.reconcileJobs(t.Context()); err == nil {
		t.Error("the fault is not reported")
	}
	if !contains(e.records(), job.Name+"!") {
		t.Error("the record of a Job that may still be there is gone")
	}
	e.onDelete = nil
	e.runJobsOnce()
	if contains(e.records(), job.Name+"!") {
		t.Error("the record is still there")
	}
}

// TestOneErrorDoesNotStopOthers: an error with one Job does not stop the processing of others.
func TestOneErrorDoesNotStopOthers(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("a"), public("b"))
	for _, name := range []string{"a", "b"} {
		e.index(public(name))
		e.saveCatalog(public(name))
	}
	jobs := e.jobs("catalog")
	for i := range jobs {
		e.setEndCondition(&jobs[i], batchv1.JobComplete, "", "")
	}
	stubborn := jobs[0].Name
	e.onDelete = func(o client.Object) error {
		if o.GetName() == stubborn {
			return errors.New("no answer")
		}
		return nil
	}
	_ = e.reconcileJobs(t.Context())
	if contains(e.records(), jobs[1].Name) || contains(e.records(), jobs[1].Name+"!") {
		t.Error("the second Job is not looked after, because the first could not be removed")
	}
}

// TestMatchWorkers: match workers run while there is work, and not more than needed.
func TestMatchWorkers(t *testing.T) {
	web := public("web")
	for name, tt := range map[string]struct {
		arrange func(e *engine)
		workers int
	}{
		"nothing runs":                    {func(*engine) {}, 0},
		"nothing is cataloged, no data":   {func(e *engine) { e.setListed(build(0)); e.setUsed(web) }, 1}, // the database can be downloaded meanwhile
		"nothing is known of any data":    {func(e *engine) { e.setUsed(web) }, 0},
		"something to match":              {func(e *engine) { e.reportInstalled(build(0)); e.setUsed(web); e.saveCatalog(web) }, 1},
		"everything is matched":           {func(e *engine) { e.matched(web, 0) }, 0},
		"newer data":                      {func(e *engine) { e.matched(web, 0); e.setListed(build(1)) }, 1},
		"older data than what is there":   {func(e *engine) { e.matched(web, 2); e.setListed(build(1)) }, 0},
		"newer data, but nothing uses it": {func(e *engine) { e.reportInstalled(build(0)); e.setListed(build(1)) }, 0},
		"newer data was refused":          {func(e *engine) { e.matched(web, 0); e.setListed(build(1)); e.refuses(build(1)) }, 0},
		"newer data was refused long ago": {func(e *engine) {
			e.matched(web, 0)
			e.setListed(build(1))
			e.refuses(build(1))
			e.advance(refusalLifetime)
		}, 1},
		"a worker crashed a moment ago": {func(e *engine) { e.reportInstalled(build(0)); e.setUsed(web); e.saveCatalog(web); e.crashes(1) }, 0},
		"a worker crashed some time ago": {func(e *engine) {
			e.reportInstalled(build(0))
			e.setUsed(web)
			e.saveCatalog(web)
			e.crashes(1)
			e.advance(10 * time.Second)
		}, 1},
		"an image that could not be matched": {func(e *engine) {
			e.reportInstalled(build(0))
			e.setUsed(web)
			e.saveCatalog(web)
			e.must(e.FailMatch(e.t.Context(), e.leaseOne(), failedMatch))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			tt.arrange(e)
			e.runJobsOnce()
			e.runJobsOnce()
			if got := len(e.jobs("match")); got != tt.workers {
				t.Errorf("%d match workers, want %d", got, tt.workers)
			}
		})
	}
}

// matched has an image cataloged and matched with build(hours).
func (e *engine) matched(img backendImage, hours int) {
	e.t.Helper()
	e.reportInstalled(build(hours))
	e.setUsed(img)
	e.saveCatalog(img)
	e.must(e.SaveReport(e.t.Context(), e.leaseOne(), report(hours, openssl)))
}

// TestMoreMatchWorkers: there is one worker per ImagesPerWorker images, up to the bound, and each run of the Job loop starts one. With a
// shared volume, which only one node can mount, there is one worker.
func TestMoreMatchWorkers(t *testing.T) {
	for name, tt := range map[string]struct {
		images, perWorker, most int
		claim                   string
		want                    int
	}{
		"few images":       {images: 3, perWorker: 3, most: 5, want: 1},
		"one more":         {images: 4, perWorker: 3, most: 5, want: 2},
		"many":             {images: 9, perWorker: 1, most: 3, want: 3},
		"many, one volume": {images: 9, perWorker: 1, most: 3, claim: "databases", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(o *Options) {
				o.Config.Grype.Match.ImagesPerWorker, o.Config.Grype.Match.MaxWorkers = tt.perWorker, tt.most
				o.Config.Grype.Database.Volume.ClaimName = tt.claim
			})
			e.reportInstalled(build(0))
			for i := range tt.images {
				img := public(string(rune('a' + i)))
				e.setUsed(img)
				e.saveCatalog(img)
			}
			for look := range tt.want + 3 {
				e.runJobsOnce()
				if got, most := len(e.jobs("match")), min(look+1, tt.want); got != most {
					t.Fatalf("after %d looks there are %d match workers, want %d", look+1, got, most)
				}
			}
		})
	}
}

// TestRejectedMatchWorker: if a match worker cannot be created, the reason is reported and the next attempt is delayed.
func TestRejectedMatchWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		err     error
		records int // a worker that may exist stays recorded
	}{
		"a quota":   {apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "scan", errors.New("exceeded quota")), 0},
		"no answer": {errors.New("exceeded time"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.reportInstalled(build(0))
			e.setUsed(public("web"))
			e.saveCatalog(public("web"))
			tries := 0
			e.onCreate = func(client.Object) error { tries++; return tt.err }
			if err := e.reconcileJobs(t.Context()); err == nil {
				t.Error("the fault is not reported")
			}
			if got := e.DataProblem(store.DataVersion{}); !strings.Contains(got, "exceeded") {
				t.Errorf("the data's problem is %q, want what the API server said", got)
			}
			if got := len(e.records()); got != tt.records {
				t.Errorf("%d records, want %d", got, tt.records)
			}
			e.runJobsOnce()
			if tries != 1 {
				t.Errorf("it is tried %d times at once", tries)
			}
		})
	}
}

// TestMatchWorkerEnds: how a match worker's end affects the reported data problem, and how soon the next one starts.
func TestMatchWorkerEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(e *engine, job *batchv1.Job)
		problem string
		next    bool
	}{
		"it was idle": {func(e *engine, job *batchv1.Job) { e.setEndCondition(job, batchv1.JobComplete, "", "") }, "", true},
		"somebody deleted it": {func(e *engine, job *batchv1.Job) {
			e.must(e.cluster.Delete(e.t.Context(), job))
		}, "", true},
		"it died": {func(e *engine, job *batchv1.Job) {
			e.pod(job, terminated(2, "Error", "panic: no"))
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "the last match worker failed: WorkerCrashed: the worker ended with exit code 2: panic: no", false},
		"it said why": {func(e *engine, job *batchv1.Job) {
			e.pod(job, terminated(1, "Error", `{"reason":"DatabaseUnreadable","message":"disk full"}`))
			e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}, "the last match worker failed: DatabaseUnreadable: disk full", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.reportInstalled(build(0))
			e.setUsed(public("web"))
			e.saveCatalog(public("web"))
			e.runJobsOnce()
			first := e.job("match")
			e.woken = nil
			tt.happens(e, first)
			e.runJobsOnce()
			if got := e.DataProblem(store.DataVersion{}); got != tt.problem {
				t.Errorf("the data's problem is %q, want %q", got, tt.problem)
			}
			jobs := e.jobs("match")
			if next := len(jobs) == 1 && jobs[0].Name != first.Name; next != tt.next {
				t.Errorf("another one is started at once: %v, want %v", next, tt.next)
			}
			if len(e.woken) != 0 {
				t.Errorf("ImageScans %q are woken for nothing", e.woken)
			}
		})
	}
}

// TestPendingMatchWorker: the reason why a match worker does not start is reported, before and after the worker is given up.
func TestPendingMatchWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     func(*corev1.Pod)
		timeout time.Duration
		want    string
	}{
		"its image cannot be pulled": {waiting("ImagePullBackOff", "404"), startTimeout, "WorkerImageNotPulled: the worker's image cannot be pulled: ImagePullBackOff: 404"},
		"no node has room":           {unschedulable, slowStartTimeout, "Unschedulable: no node takes the worker's pod: 0/1 nodes are available: 1 Insufficient memory."},
	} {
		t.Run(name, func(t *testing.T) {
			e, web := newEngine(t), public("web")
			e.reportInstalled(build(0))
			e.setUsed(web)
			e.saveCatalog(web)
			e.runJobsOnce()
			e.pod(e.job("match"), pending, tt.pod)
			expectProblem := func(want string) {
				t.Helper()
				e.runJobsOnce()
				if got := e.DataProblem(store.DataVersion{}); got != want {
					t.Errorf("the data's problem is %q, want %q", got, want)
				}
				progress, err := e.Match(t.Context(), web)
				if err != nil || !strings.Contains(progress.Message, want) {
					t.Errorf("the image waits: %q and error %v, want it to say %q", progress.Message, err, want)
				}
			}
			changes := e.dataChanges
			e.advance(firstCheckAge)
			expectProblem("the match worker does not start: " + tt.want)
			if e.dataChanges == changes {
				t.Error("Scanners are not woken to say so")
			}
			e.advance(tt.timeout)
			expectProblem("the last match worker failed: " + tt.want)
		})
	}
}

// TestPendingMatchWorkerIsNotNeeded: a match worker that does not start is no problem any more when no image is in use.
func TestPendingMatchWorkerIsNotNeeded(t *testing.T) {
	e := newEngine(t)
	e.reportInstalled(build(0))
	e.setUsed(public("web"))
	e.saveCatalog(public("web"))
	e.runJobsOnce()
	e.pod(e.job("match"), pending, unschedulable)
	e.advance(firstCheckAge)
	e.runJobsOnce()
	if e.DataProblem(store.DataVersion{}) == "" {
		t.Fatal("that the match worker does not start is no problem")
	}
	e.must(e.Store.DeleteScanners(t.Context(), []string{scannerUID}))
	e.runJobsOnce()
	if problem := e.DataProblem(store.DataVersion{}); problem != "" {
		t.Errorf("without a match worker the data's problem is %q, want none", problem)
	}
}

// TestOneOfTwoMatchWorkersPending: while one match worker runs, another one that does not start is no problem of the data.
func TestOneOfTwoMatchWorkersPending(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Config.Grype.Match.ImagesPerWorker = 1 })
	e.reportInstalled(build(0))
	for _, img := range []backend.Image{public("web"), public("db")} {
		e.setUsed(img)
		e.saveCatalog(img)
	}
	e.runJobsOnce()
	first := e.job("match")
	works := e.pod(first, runningOn("node"))
	e.runJobsOnce()
	for _, job := range e.jobs("match") {
		if job.Name != first.Name {
			e.pod(&job, pending, unschedulable)
		}
	}
	changes := e.dataChanges
	e.advance(firstCheckAge)
	e.runJobsOnce()
	if jobs, problem := len(e.jobs("match")), e.DataProblem(store.DataVersion{}); jobs != 2 || problem != "" {
		t.Errorf("of %d match workers one works, and the data's problem is %q; want 2 and none", jobs, problem)
	}
	e.must(e.cluster.Delete(t.Context(), works))
	e.must(e.cluster.Delete(t.Context(), first))
	e.runJobsOnce()
	if problem := e.DataProblem(store.DataVersion{}); !strings.Contains(problem, "the match worker does not start: Unschedulable") || e.dataChanges == changes {
		t.Errorf("when that one has gone the data's problem is %q, and Scanners were woken %d times; want that the other does not start", problem, e.dataChanges-changes)
	}
}

// TestUnreadableJobs: a Job in a namespace that the operator may not read any more does not occupy its slot forever.
func TestUnreadableJobs(t *testing.T) {
	e := newEngine(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "any", errors.New("no rule"))
	web := private("web", "pull")
	e.setUsed(web)
	e.index(web)
	e.job("catalog")
	reader := e.Reader
	e.Reader = forbiddenJobs{reader, forbidden}
	e.onDelete = func(client.Object) error { return forbidden }
	if err := e.reconcileJobs(t.Context()); !apierrors.IsForbidden(err) || len(e.records()) != 1 {
		t.Errorf("error %v and records %q, want that it is forbidden and the record stays", err, e.records())
	}
	e.advance(e.Config.Grype.Catalog.Deadline.Duration + e.Config.Grype.Catalog.History.TTL.Duration + slowStartTimeout)
	e.runJobsOnce()
	if left := e.records(); len(left) != 0 {
		t.Errorf("the records %q stay for ever", left)
	}
}

type forbiddenJobs struct {
	client.Reader
	err error
}

func (r forbiddenJobs) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, job := o.(*batchv1.Job); job {
		return r.err
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// TestMatchWorkerIsNotNeeded: a match worker is removed when no image is in use.
func TestMatchWorkerIsNotNeeded(t *testing.T) {
	e := newEngine(t)
	e.reportInstalled(build(0))
	e.setUsed(public("web"))
	e.saveCatalog(public("web"))
	e.runJobsOnce()
	e.job("match")
	e.must(e.Store.DeleteScanners(t.Context(), []string{scannerUID}))
	e.runJobsOnce()
	if jobs := e.jobs("match"); len(jobs) != 0 {
		t.Error("the match worker still runs")
	}
}

// TestEndedJobsLeases: the leases of a match worker end with its Job.
func TestEndedJobsLeases(t *testing.T) {
	e := newEngine(t)
	e.reportInstalled(build(0))
	e.setUsed(public("web"))
	e.saveCatalog(public("web"))
	e.runJobsOnce()
	job := e.job("match")
	leases, err := e.Store.LeaseMatches(t.Context(), Engine, string(job.UID), 1, noon, noon.Add(leaseTime))
	if err != nil || len(leases) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	e.must(e.cluster.Delete(t.Context(), job))
	e.runJobsOnce()
	if again := e.leaseOne(); again.PlatformDigest != leases[0].PlatformDigest {
		t.Errorf("the image of the dead worker is not lent again: %v", again)
	}
}

// TestFinished: which conditions mean that a Job has ended.
func TestFinished(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions []batchv1.JobCondition
		want       batchv1.JobConditionType
	}{
		"none":                {nil, ""},
		"suspended":           {[]batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}, ""},
		"about to fail":       {[]batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}, ""},
		"failed":              {[]batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}, batchv1.JobFailed},
		"complete":            {[]batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}, batchv1.JobComplete},
		"expressly not (yet)": {[]batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionFalse}}, ""},
	} {
		got := batchv1.JobConditionType("")
		if condition := endCondition(&batchv1.Job{Status: batchv1.JobStatus{Conditions: tt.conditions}}); condition != nil {
			got = condition.Type
		}
		if got != tt.want {
			t.Errorf("%s: ended by %q, want %q", name, got, tt.want)
		}
	}
}

// TestVolume: which volume match workers use for databases.
func TestVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		configured string
		objects    []client.Object
		want       string // name of the PersistentVolumeClaim, or "" for an emptyDir
		made       bool
	}{
		"as configured":               {"databases", nil, "databases", false},
		"as configured, with a class": {"databases", []client.Object{storageClass("true")}, "databases", false},
		"a default class":             {"", []client.Object{storageClass("true")}, DatabasePVC, true},
		"a class, but no default one": {"", []client.Object{storageClass("false")}, "", false},
		"no class":                    {"", nil, "", false},
		"a claim of former times":     {"", []client.Object{storageClass("true"), claim()}, DatabasePVC, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(o *Options) { o.Config.Grype.Database.Volume.ClaimName = tt.configured })
			for _, o := range tt.objects {
				e.must(e.cluster.Create(t.Context(), o))
			}
			for range 2 { // the second call uses the remembered volume
				source, err := e.volume.choose(t.Context(), e.Backend)
				e.must(err)
				got := ""
				if source.PersistentVolumeClaim != nil {
					got = source.PersistentVolumeClaim.ClaimName
				} else if source.EmptyDir == nil || source.EmptyDir.SizeLimit.String() != "10Gi" {
					t.Errorf("volume %+v, want an emptyDir of 10Gi", source)
				}
				if got != tt.want {
					t.Errorf("the claim is %q, want %q", got, tt.want)
				}
				if e.volume.shared() != (tt.want != "") {
					t.Errorf("workers share the volume: %v", e.volume.shared())
				}
			}
			var made corev1.PersistentVolumeClaim
			err := e.cluster.Get(t.Context(), types.NamespacedName{Namespace: operatorNamespace, Name: DatabasePVC}, &made)
			if (err == nil) != tt.made {
				t.Errorf("the claim in the cluster: %v, want it there: %v", err, tt.made)
			}
		})
	}
}

// TestStoreKeepsReports: the Job loop never changes reports.
func TestStoreKeepsReports(t *testing.T) {
	e := newEngine(t)
	e.matched(public("web"), 0)
	before := e.summary(public("web"))
	for range 5 {
		e.advance(time.Minute)
		e.runJobsOnce()
	}
	if diff := cmp.Diff(before, e.summary(public("web")), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the report changed:\n%s", diff)
	}
}
