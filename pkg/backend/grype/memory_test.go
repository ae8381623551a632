package grype

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// memory returns a resource list with this much memory, or nil for "".
func memory(quantity string) corev1.ResourceList {
	if quantity == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}
}

func quantities(texts ...string) (all []resource.Quantity) {
	for _, text := range texts {
		all = append(all, resource.MustParse(text))
	}
	return all
}

// TestLadder: the memory of an attempt follows from the resources, the rungs and what was not enough before.
func TestLadder(t *testing.T) {
	for name, tt := range map[string]struct {
		request, limit string
		rungs          []string
		exceeded       string
		want           string // request/limit
	}{
		"the first attempt":                       {"512Mi", "2Gi", []string{"4Gi", "8Gi"}, "0", "512Mi/2Gi"},
		"the next rung":                           {"512Mi", "2Gi", []string{"4Gi", "8Gi"}, "2Gi", "512Mi/4Gi"},
		"rungs in any order":                      {"512Mi", "2Gi", []string{"8Gi", "4Gi"}, "2Gi", "512Mi/4Gi"},
		"the last rung":                           {"512Mi", "2Gi", []string{"4Gi", "8Gi"}, "4Gi", "512Mi/8Gi"},
		"the last rung was not enough either":     {"512Mi", "2Gi", []string{"4Gi", "8Gi"}, "8Gi", "512Mi/8Gi"},
		"no rungs":                                {"512Mi", "2Gi", nil, "2Gi", "512Mi/2Gi"},
		"rungs below the limit are none":          {"512Mi", "6Gi", []string{"1Gi", "4Gi", "8Gi"}, "6Gi", "512Mi/8Gi"},
		"what was not enough is less than usual":  {"512Mi", "6Gi", []string{"4Gi", "8Gi"}, "2Gi", "512Mi/6Gi"},
		"what was not enough is between rungs":    {"512Mi", "2Gi", []string{"4Gi", "8Gi"}, "5Gi", "512Mi/8Gi"},
		"no limit of its own, first attempt":      {"512Mi", "", []string{"4Gi"}, "0", "512Mi/0"},
		"no limit of its own, after a LimitRange": {"512Mi", "", []string{"1Gi", "4Gi"}, "1Gi", "512Mi/4Gi"},
		"a request above the rung":                {"6Gi", "", []string{"1Gi", "4Gi"}, "1Gi", "4Gi/4Gi"},
		"no request":                              {"", "2Gi", []string{"4Gi"}, "2Gi", "0/4Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			l := ladder{resources: corev1.ResourceRequirements{Requests: memory(tt.request), Limits: memory(tt.limit)}, rungs: quantities(tt.rungs...)}
			exceeded := resource.MustParse(tt.exceeded)
			got := l.resourcesAfter(exceeded.Value())
			if text := got.Requests.Memory().String() + "/" + got.Limits.Memory().String(); text != tt.want {
				t.Errorf("request/limit %s, want %s", text, tt.want)
			}
			if again := l.resources.Limits.Memory().String(); tt.limit != "" && again != tt.limit {
				t.Errorf("the configuration itself was changed to %s", again)
			}
		})
	}
}

// TestLadderOfAScanner: a Scanner can set the start and the rungs of the ladder for Jobs in its own namespace, but not for those in the
// operator's.
func TestLadderOfAScanner(t *testing.T) {
	shape := func(request, limit string, rungs ...string) *v1alpha1.CatalogJob {
		return &v1alpha1.CatalogJob{
			Resources:    &corev1.ResourceRequirements{Requests: memory(request), Limits: memory(limit)},
			MemoryLadder: quantities(rungs...),
		}
	}
	own, shared := private("web", "pull"), public("web")
	for name, tt := range map[string]struct {
		img  backend.Image
		job  *v1alpha1.CatalogJob
		want []string // limits, first attempt first
	}{
		"it says nothing":             {own, nil, []string{"2Gi", "4Gi", "8Gi"}},
		"its own rungs":               {own, &v1alpha1.CatalogJob{MemoryLadder: quantities("3Gi")}, []string{"2Gi", "3Gi"}},
		"its own resources":           {own, shape("", "1Gi"), []string{"1Gi", "4Gi", "8Gi"}},
		"its own resources and rungs": {own, shape("", "1Gi", "2Gi", "3Gi"), []string{"1Gi", "2Gi", "3Gi"}},
		"resources without a limit":   {own, shape("1Gi", ""), []string{"2Gi", "4Gi", "8Gi"}},
		"a request above the limit":   {own, shape("3Gi", ""), []string{"3Gi", "4Gi", "8Gi"}},
		"in the operator's namespace": {shared, shape("", "1Gi", "64Gi"), []string{"2Gi", "4Gi", "8Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			tt.img.Job = tt.job
			var got []string
			for exceeded, limit := int64(0), int64(-1); limit != exceeded; {
				exceeded = max(limit, 0)
				resources := e.catalogJob("x", tt.img, exceeded).Spec.Template.Spec.Containers[0].Resources
				if limit = resources.Limits.Memory().Value(); limit != exceeded {
					got = append(got, formatBytes(limit))
				}
				if request := resources.Requests.Memory(); request.Cmp(*resources.Limits.Memory()) > 0 {
					t.Errorf("the request %s is above the limit %s", request, resources.Limits.Memory())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("limits of the attempts (-want +got):\n%s", diff)
			}
		})
	}
}

// killForMemory has the worker of the only live Job OOM-killed.
func (e *engine) killForMemory() {
	e.t.Helper()
	live, err := e.Store.LiveJobs(e.t.Context())
	e.must(err)
	for _, job := range e.jobs("catalog") {
		if len(live) == 1 && string(job.UID) == live[0].UID {
			e.pod(&job, withMemoryLimit(job.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()), terminated(137, "OOMKilled", ""))
			e.setEndCondition(&job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		}
	}
	e.woken = nil
	e.runJobsOnce()
}

// liveJobMemory returns the memory of the only live Job.
func (e *engine) liveJobMemory() string {
	e.t.Helper()
	live, err := e.Store.LiveJobs(e.t.Context())
	e.must(err)
	if len(live) != 1 {
		e.t.Fatalf("%d Jobs live, want 1", len(live))
	}
	return formatBytes(live[0].Memory)
}

// TestMemoryLadder: an image whose worker was OOM-killed is retried at once with more memory, without a failure. The needed memory is
// remembered across restarts. The failure at the top of the ladder names the setting.
func TestMemoryLadder(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	e.setUsed(web)
	for i, want := range []string{"2Gi", "4Gi", "8Gi"} {
		if got := e.index(web); got != v1alpha1.ReasonCataloging {
			t.Fatalf("attempt %d: the image's state is %q, want %q", i+1, got, v1alpha1.ReasonCataloging)
		}
		if got := e.liveJobMemory(); got != want {
			t.Errorf("attempt %d has %s, want %s", i+1, got, want)
		}
		if i == 1 {
			progress, err := e.Index(t.Context(), web)
			e.must(err)
			if want := "with up to 4Gi of memory: 2Gi were not enough"; !strings.HasSuffix(progress.Message, want) {
				t.Errorf("it gets %q, want %q", progress.Message, want)
			}
		}
		e.killForMemory()
		if !contains(e.woken, web.Key.Digest) {
			t.Errorf("after attempt %d its ImageScans are not woken", i+1)
		}
	}
	_, err := e.Index(t.Context(), web)
	want := "OutOfMemory: the worker needed more memory than 8Gi: add a larger limit to grype.catalog.memoryLadder in the operator's configuration"
	if err == nil || err.Error() != want {
		t.Errorf("at the top it gets %v, want %s", err, want)
	}
	e.advance(failureTTL)
	restarted := New(e.Options)
	if _, err := restarted.StartCatalog(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if got := e.liveJobMemory(); got != "8Gi" {
		t.Errorf("the next attempt has %s, want the 8Gi that it needs at least", got)
	}
}

// TestMemoryIsRememberedByScope: the memory that a namespace's own Job needed, or claims to have needed, changes nothing for the
// operator's Jobs and for other namespaces.
func TestMemoryIsRememberedByScope(t *testing.T) {
	e := newEngine(t)
	own, elsewhere, shared := private("web", "pull"), private("web", "pull"), public("web")
	elsewhere.Namespace, elsewhere.Scope = "blog", "blog"
	e.setUsed(own, elsewhere, shared)
	e.index(own)
	e.killForMemory()
	for _, tt := range []struct {
		img  backend.Image
		want string
	}{{elsewhere, "2Gi"}, {shared, "2Gi"}, {own, "4Gi"}} {
		e.index(tt.img)
		if got := e.liveJobMemory(); got != tt.want {
			t.Errorf("in the scope %q it gets %s, want %s", tt.img.Scope, got, tt.want)
		}
		e.must(e.Store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: tt.img.Scanner, Namespace: "shop", Key: tt.img.Key}, false))
		live, err := e.Store.LiveJobs(t.Context())
		e.must(err)
		e.must(e.deleteJob(t.Context(), live[0]))
	}
}

// TestChangedMemoryLimit: the message names the pod's limit. The ladder continues from the Job's own limit, whatever changed the pod's.
func TestChangedMemoryLimit(t *testing.T) {
	const rest = ": add a larger limit to spec.backend.grype.job.memoryLadder of the Scanner (or grype.catalog.memoryLadder in the operator's configuration)"
	for name, tt := range map[string]struct{ pod, want string }{
		"lowered": {"1Gi", "OutOfMemory: the worker needed more memory than 1Gi (the Job has a limit of 8Gi, which something in its namespace lowers)" + rest},
		"raised":  {"16Gi", "OutOfMemory: the worker needed more memory than 16Gi" + rest},
		"kept":    {"8Gi", "OutOfMemory: the worker needed more memory than 8Gi" + rest},
		"removed": {"0", "OutOfMemory: the worker needed more memory than 8Gi" + rest},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			own := private("web", "pull")
			e.setUsed(own)
			for _, memory := range []string{"2Gi", "4Gi", "8Gi"} {
				e.index(own)
				if got := e.liveJobMemory(); got != memory {
					t.Errorf("an attempt has %s, want %s", got, memory)
				}
				job := e.jobFor(own)
				e.pod(job, withMemoryLimit(tt.pod), terminated(137, "OOMKilled", ""))
				e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
				e.runJobsOnce()
			}
			if _, err := e.Index(t.Context(), own); err == nil || err.Error() != tt.want {
				t.Errorf("at the top it gets %v, want %s", err, tt.want)
			}
		})
	}
}

// TestForgedOutOfMemory: a tenant's worker that only reports an OOM kill gets no more memory.
func TestForgedOutOfMemory(t *testing.T) {
	e := newEngine(t)
	own := private("web", "pull")
	e.setUsed(own)
	e.index(own)
	job := e.job("catalog")
	e.pod(job, withMemoryLimit("2Gi"), terminated(1, "Error", `{"reason":"OutOfMemory","message":"more!"}`))
	e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	e.runJobsOnce()
	if got := e.index(own); got != "failure OutOfMemory" {
		t.Errorf("the image's state is %q, want the failure", got)
	}
	e.advance(failureTTL)
	e.index(own)
	if got := e.liveJobMemory(); got != "2Gi" {
		t.Errorf("the next attempt has %s, want 2Gi", got)
	}
}
