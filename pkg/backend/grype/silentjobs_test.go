package grype

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestHungMatchWorkerIsReplaced: a match worker that makes no request for longer than a lease is ended, and another one takes over its
// images, with and without a shared volume.
func TestHungMatchWorkerIsReplaced(t *testing.T) {
	for name, claim := range map[string]string{"with a volume each": "", "with one claim": "databases"} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(o *Options) { o.Config.Grype.Database.Volume.ClaimName = claim })
			e.reportInstalled(build(0))
			for _, img := range []backend.Image{public("endless"), public("web")} {
				e.setUsed(img)
				e.saveCatalog(img)
			}
			e.runJobsOnce()
			hung := e.job("match")
			e.pod(hung, runningOn("node"))
			e.RecordContact(t.Context(), store.Job{UID: string(hung.UID)})
			// The worker leases both images and makes no further request.
			_, err := e.Store.LeaseMatches(t.Context(), Engine, string(hung.UID), 2, e.clock.Now(), e.clock.Now().Add(leaseTime))
			e.must(err)
			e.advance(leaseTime)
			e.runJobsOnce()
			if got := e.job("match").Name; got != hung.Name {
				t.Fatalf("%s, which made a request within a lease, is replaced by %s", hung.Name, got)
			}
			e.advance(time.Second)
			e.runJobsOnce()
			if got := len(e.jobs("match")); got != 0 {
				t.Fatalf("%d match workers, want that the silent one is ended", got)
			}
			if problem := e.DataProblem(store.DataVersion{}); !strings.Contains(problem, "WorkerSilent: the worker made no request for 10m0s") {
				t.Errorf("the data's problem is %q, want that the worker was silent", problem)
			}
			e.advance(time.Minute)
			e.runJobsOnce()
			if got := e.job("match").Name; got == hung.Name {
				t.Error("the silent worker is there again")
			}
			if first := e.leaseOne(); first.PlatformDigest == "" {
				t.Error("what the silent worker had is not leased again")
			}
		})
	}
}

// TestActiveWorkersStay: a match worker that makes requests is kept, even after a restart of the manager, which forgets the last
// request.
func TestActiveWorkersStay(t *testing.T) {
	e := newEngine(t)
	e.reportInstalled(build(0))
	e.setUsed(public("web"))
	e.saveCatalog(public("web"))
	e.runJobsOnce()
	job := e.job("match")
	e.pod(job, runningOn("node"))
	for range 24 {
		e.advance(leaseTime)
		e.RecordContact(t.Context(), store.Job{UID: string(job.UID)})
		e.runJobsOnce()
	}
	if got := e.job("match").Name; got != job.Name {
		t.Errorf("%s is replaced by %s, though it made requests all the time", job.Name, got)
	}
	e.Backend = New(e.Options)
	e.advance(24 * time.Hour)
	e.runJobsOnce()
	if got := e.job("match").Name; got != job.Name {
		t.Errorf("after a restart of the manager %s is replaced by %s at once", job.Name, got)
	}
	e.advance(leaseTime + slowStartTimeout + time.Second)
	e.runJobsOnce()
	if got := len(e.jobs("match")); got != 0 {
		t.Error("a worker that is silent since the manager's restart stays")
	}
}

// TestTimedOutImageWaitsLonger: an image whose match times out is retried later than one that fails otherwise.
func TestTimedOutImageWaitsLonger(t *testing.T) {
	for reason, want := range map[string]time.Duration{workerapi.ReasonMatchFailed: 10 * time.Minute, workerapi.ReasonMatchTimedOut: time.Hour} {
		e := newEngine(t)
		e.reportInstalled(build(0))
		e.setUsed(public("web"))
		e.saveCatalog(public("web"))
		e.must(e.FailMatch(t.Context(), e.leaseOne(), workerapi.Failure{Reason: reason, Message: "no"}))
		_, err := e.Match(t.Context(), public("web"))
		var failure *backend.Failure
		if !errors.As(err, &failure) || failure.Reason != reason || failure.RetryAfter != want {
			t.Errorf("the image fails with %v, want %s and another try after %s", err, reason, want)
		}
	}
}

// TestJobsOfAnotherVersion: after an upgrade, the Jobs of the previous version are ended. That is no failure of their images or of the
// images that they have leased.
func TestJobsOfAnotherVersion(t *testing.T) {
	e := newEngine(t)
	web, api := public("web"), public("api")
	e.reportInstalled(build(0))
	e.setUsed(web, api)
	e.saveCatalog(web)
	e.index(api)
	e.runJobsOnce()
	match, catalog := e.job("match"), e.job("catalog")
	for range store.MaxSilentEnds {
		_, err := e.Store.LeaseMatches(t.Context(), Engine, string(e.job("match").UID), 1, e.clock.Now(), e.clock.Now().Add(leaseTime))
		e.must(err)
		e.Options.WorkerImage += "-next"
		e.Backend = New(e.Options)
		e.runJobsOnce()
	}
	if got := e.jobs("catalog"); len(got) != 0 {
		t.Errorf("%d catalog Jobs are left, want that %s is ended", len(got), catalog.Name)
	}
	if got := e.job("match"); got.Name == match.Name || got.Spec.Template.Spec.Containers[0].Image != e.Options.WorkerImage {
		t.Errorf("the match worker is %s with the image %s, want another one with %s", got.Name, got.Spec.Template.Spec.Containers[0].Image, e.Options.WorkerImage)
	}
	if got := e.index(api); got != "Cataloging" {
		t.Errorf("the image whose Job was ended says %q, want that it is being cataloged", got)
	}
	if got := e.match(web); got != "Matching" {
		t.Errorf("the image whose worker was ended says %q, want that it is being matched", got)
	}
}
