package grype

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// imageFrom returns an image with pull references at these registries, in this order.
func imageFrom(name string, hosts ...string) backend.Image {
	img := public(name)
	img.PullReferences = nil
	for _, host := range hosts {
		img.PullReferences = append(img.PullReferences, host+"/"+name+"@"+img.Key.Digest)
	}
	return img
}

// jobFor returns the latest Job of an image.
func (e *engine) jobFor(img backend.Image) *batchv1.Job {
	e.t.Helper()
	jobs := e.jobs("catalog")
	slices.SortFunc(jobs, func(a, b batchv1.Job) int { return strings.Compare(b.Name, a.Name) })
	for i := range jobs {
		if strings.Contains(strings.Join(jobs[i].Spec.Template.Spec.Containers[0].Args, " "), img.Key.Digest) {
			return &jobs[i]
		}
	}
	e.t.Fatalf("there is no Job for %s", img.Key)
	return nil
}

// throttleJob has the Job of an image fail because a registry throttles for some seconds; 0 for no Retry-After.
func (e *engine) throttleJob(img backend.Image, host string, seconds int) {
	e.t.Helper()
	e.setUsed(img)
	if got := e.index(img); got != "Cataloging" {
		e.t.Fatalf("the image's state is %q instead of getting a Job", got)
	}
	job := e.jobFor(img)
	e.pod(job, terminated(1, "Error", fmt.Sprintf(`{"reason":"RegistryThrottled","message":"429","retryAfterSeconds":%d,"registry":%q}`, seconds, host)))
	e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	e.runJobsOnce()
}

// TestThrottledRegistryDelaysOnlyItself: after a 429 with Retry-After, no Job starts for that registry until then. Other registries and
// other credential scopes are not affected.
func TestThrottledRegistryDelaysOnlyItself(t *testing.T) {
	e := newEngine(t)
	first := imageFrom("first", "docker.io/library")
	e.throttleJob(first, "docker.io", 120)

	var failure *backend.Failure
	if _, err := e.Index(t.Context(), first); !errors.As(err, &failure) || failure.Reason != "RegistryThrottled" || failure.RetryAfter != 2*time.Minute {
		t.Errorf("the image that was refused gets %v, want the failure RegistryThrottled and another attempt after 2m", err)
	}
	second := imageFrom("second", "docker.io/library")
	progress, err := e.Index(t.Context(), second)
	want := backend.Waiting("RegistryThrottled", "docker.io asks to wait until 2026-03-01T12:02:00Z", 2*time.Minute)
	if diff := cmp.Diff(want, progress); diff != "" || err != nil {
		t.Errorf("another image of the registry, error %v (-want +got):\n%s", err, diff)
	}
	if got := e.index(imageFrom("third", "registry-1.docker.io/library")); got != "RegistryThrottled" {
		t.Errorf("an image under the registry's other name gets %q, want that it waits, too", got)
	}
	if got := e.index(imageFrom("other", "ghcr.io/team")); got != "Cataloging" {
		t.Errorf("an image of another registry gets %q, want a Job", got)
	}
	elsewhere := imageFrom("elsewhere", "docker.io/library")
	elsewhere.Scope, elsewhere.PullSecrets = "shop", []string{"pull"}
	if got := e.index(elsewhere); got != "Cataloging" {
		t.Errorf("an image with credentials of its own gets %q, want a Job: registries count per account", got)
	}

	e.advance(2*time.Minute - time.Second)
	if got := e.index(second); got != "RegistryThrottled" {
		t.Errorf("one second before the time is over the image's state is %q", got)
	}
	e.advance(time.Second)
	if got := e.index(second); got != "Cataloging" {
		t.Errorf("when the time is over the image's state is %q, want a Job", got)
	}
	if args := e.jobFor(second).Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--spare") {
		t.Errorf("the Job spares a registry whose time is over: %q", args)
	}
}

// TestTenantThrottlesOnlyItself: whatever a Job's pod in a tenant's namespace reports about a registry, only that namespace waits.
func TestTenantThrottlesOnlyItself(t *testing.T) {
	e := newEngine(t)
	mine := imageFrom("mine", "docker.io/library")
	mine.Scope, mine.PullSecrets = "shop", []string{"pull"}
	e.throttleJob(mine, "docker.io", 3600)

	also := imageFrom("also", "docker.io/library")
	also.Scope, also.PullSecrets = "shop", []string{"pull"}
	if got := e.index(also); got != "RegistryThrottled" {
		t.Errorf("the namespace's own image gets %q, want that it waits", got)
	}
	for scope, img := range map[store.Scope]backend.Image{store.Cluster: imageFrom("shared", "docker.io/library"), "bank": imageFrom("theirs", "docker.io/library")} {
		img.Scope = scope
		if scope != store.Cluster {
			img.Namespace, img.PullSecrets = "bank", []string{"pull"}
		}
		if got := e.index(img); got != "Cataloging" {
			t.Errorf("an image in scope %q gets %q, want a Job", scope, got)
		}
	}
}

// TestThrottledWithoutRetryAfter: a registry that throttles without Retry-After is avoided for a limited time.
func TestThrottledWithoutRetryAfter(t *testing.T) {
	e := newEngine(t)
	e.throttleJob(imageFrom("first", "quay.io/a"), "quay.io", 0)
	second := imageFrom("second", "quay.io/a")
	if got := e.index(second); got != "RegistryThrottled" {
		t.Errorf("the image's state is %q, want that it waits", got)
	}
	e.advance(5 * time.Minute)
	if got := e.index(second); got != "Cataloging" {
		t.Errorf("after %s the image's state is %q, want a Job", 5*time.Minute, got)
	}
}

// TestThrottledWithAlternative: an image that a mirror or another registry also has does not wait. Its Job does not use the throttled
// registry.
func TestThrottledWithAlternative(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Config.Registries = []config.Registry{{Host: "docker.io", Mirrors: []string{"mirror.example.com"}}}
	})
	e.throttleJob(imageFrom("a", "docker.io/library"), "docker.io", 600)
	e.throttleJob(imageFrom("b", "quay.io/b"), "quay.io", 600)
	for name, tt := range map[string]struct {
		hosts []string
		want  []string // spared registries; nil if the image waits
	}{
		"a mirror":             {[]string{"docker.io/library"}, []string{"docker.io"}},
		"no mirror":            {[]string{"quay.io/x"}, nil},
		"another registry":     {[]string{"quay.io/y", "ghcr.io/y"}, []string{"quay.io"}},
		"the mirror of second": {[]string{"quay.io/z", "docker.io/z"}, []string{"quay.io", "docker.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			e.advance(time.Second) // the Jobs of an earlier case have ended
			for _, record := range e.records() {
				e.must(e.Store.DeleteJob(t.Context(), operatorNamespace, strings.TrimSuffix(record, "?")))
			}
			img := imageFrom(strings.ReplaceAll(name, " ", "-"), tt.hosts...)
			got := e.index(img)
			if tt.want == nil {
				if got != "RegistryThrottled" {
					t.Errorf("the image's state is %q, want that it waits", got)
				}
				return
			}
			if got != "Cataloging" {
				t.Fatalf("the image's state is %q, want a Job", got)
			}
			var spared []string
			args := e.jobFor(img).Spec.Template.Spec.Containers[0].Args
			for i, arg := range args {
				if arg == "--spare" {
					spared = append(spared, args[i+1])
				}
			}
			if diff := cmp.Diff(tt.want, spared); diff != "" {
				t.Errorf("registries that the Job spares (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJobReportsOnlyItsRegistries: a Job's report that a registry throttles is ignored unless the image names that registry.
func TestJobReportsOnlyItsRegistries(t *testing.T) {
	e := newEngine(t)
	e.throttleJob(imageFrom("first", "registry.example.com/a"), "docker.io", 600)
	if until, found := e.throttles.Throttled(e.clock.Now(), store.Cluster)["docker.io"]; found {
		t.Errorf("docker.io is left alone until %s, want that it is asked", until)
	}
}

// TestAvoidedRegistryIsNotThrottledAgain: a Job that avoided a throttled registry and failed after the pause was over does not start another pause,
// since the registry received no request.
func TestAvoidedRegistryIsNotThrottledAgain(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Config.Registries = []config.Registry{{Host: "docker.io", Mirrors: []string{"mirror.example.com"}}}
	})
	first, second := imageFrom("first", "docker.io/library"), imageFrom("second", "docker.io/library")
	e.throttleJob(first, "docker.io", 60)
	e.setUsed(second)
	e.index(second)
	e.advance(2 * time.Minute)
	job := e.jobFor(second)
	e.pod(job, terminated(1, "Error", `{"reason":"RegistryThrottled","message":"docker.io asked to wait","registry":"index.docker.io"}`))
	e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	e.runJobsOnce()
	if until, found := e.throttles.Throttled(e.clock.Now(), store.Cluster)["docker.io"]; found {
		t.Errorf("docker.io is left alone until %s, want that it is asked again", until)
	}
	if got := e.index(second); got != "failure RegistryThrottled" {
		t.Errorf("the image's state is %q, want why its Job failed", got)
	}
}
