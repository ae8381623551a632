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
			e.installs(build(0))
			for _, img := range []backend.Image{public("endless"), public("web")} {
				e.uses(img)
				e.catalogues(img)
			}
			e.tends()
			hung := e.job("match")
			e.pod(hung, runningOn("node"))
			e.RecordContact(store.Job{UID: string(hung.UID)})
			// The worker leases both images and makes no further request.
			_, err := e.Store.LeaseMatches(t.Context(), Engine, string(hung.UID), 2, e.clock.Now(), e.clock.Now().Add(leaseTime))
			e.must(err)
			e.pass(leaseTime)
			e.tends()
			if got := e.job("match").Name; got != hung.Name {
				t.Fatalf("%s, which made a request within a lease, is replaced by %s", hung.Name, got)
			}
			e.pass(time.Second)
			e.tends()
			if got := len(e.jobs("match")); got != 0 {
				t.Fatalf("%d match workers, want that the silent one is ended", got)
			}
			if problem := e.DataProblem(store.DataVersion{}); !strings.Contains(problem, "WorkerSilent: the worker made no request for 10m0s") {
				t.Errorf("the data's problem is %q, want that the worker was silent", problem)
			}
			e.pass(time.Minute)
			e.tends()
			if got := e.job("match").Name; got == hung.Name {
				t.Error("the silent worker is there again")
			}
			if first := e.leases(); first.PlatformDigest == "" {
				t.Error("what the silent worker had is not leased again")
			}
		})
	}
}

// TestWorkersThatMakeRequestsStay: a match worker that makes requests is kept, even after a restart of the manager, which forgets the last
// request.
func TestWorkersThatMakeRequestsStay(t *testing.T) {
	e := newEngine(t)
	e.installs(build(0))
	e.uses(public("web"))
	e.catalogues(public("web"))
	e.tends()
	job := e.job("match")
	e.pod(job, runningOn("node"))
	for range 24 {
		e.pass(leaseTime)
		e.RecordContact(store.Job{UID: string(job.UID)})
		e.tends()
	}
	if got := e.job("match").Name; got != job.Name {
		t.Errorf("%s is replaced by %s, though it made requests all the time", job.Name, got)
	}
	e.Backend = New(e.Options)
	e.pass(24 * time.Hour)
	e.tends()
	if got := e.job("match").Name; got != job.Name {
		t.Errorf("after a restart of the manager %s is replaced by %s at once", job.Name, got)
	}
	e.pass(leaseTime + slowPatience + time.Second)
	e.tends()
	if got := len(e.jobs("match")); got != 0 {
		t.Error("a worker that is silent since the manager's restart stays")
	}
}

// TestTimedOutImageWaitsLonger: an image whose match times out is retried later than one that fails otherwise.
func TestTimedOutImageWaitsLonger(t *testing.T) {
	for reason, want := range map[string]time.Duration{workerapi.ReasonMatchFailed: 10 * time.Minute, workerapi.ReasonMatchTimedOut: time.Hour} {
		e := newEngine(t)
		e.installs(build(0))
		e.uses(public("web"))
		e.catalogues(public("web"))
		e.must(e.FailMatch(t.Context(), e.leases(), workerapi.Failure{Reason: reason, Message: "no"}))
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
	e.installs(build(0))
	e.uses(web, api)
	e.catalogues(web)
	e.index(api)
	e.tends()
	match, catalog := e.job("match"), e.job("catalog")
	for range store.MaxSilentEnds {
		_, err := e.Store.LeaseMatches(t.Context(), Engine, string(e.job("match").UID), 1, e.clock.Now(), e.clock.Now().Add(leaseTime))
		e.must(err)
		e.Options.WorkerImage += "-next"
		e.Backend = New(e.Options)
		e.tends()
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
