package grype

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// harness is the contract's harness for this engine. It does what workers do in a cluster.
type harness struct {
	*engine
	// published counts calls of Publish. opened is the database that match workers have open.
	published int
	opened    workerapi.Database
	// repositories holds the repository of each image, and listed how often a worker cataloged the image.
	repositories map[image.Key]string
	listed       map[image.Key]int
	broken       bool
}

func (h *harness) Backend(backendtest.Scanner) backend.Backend { return h.engine.Backend }

func (h *harness) Store() *store.Store { return h.engine.Backend.Store }

func (h *harness) Restart() { h.engine.Backend = New(h.Options) }

func (h *harness) Image(repository string) backend.Image {
	k := key(repository)
	h.repositories[k] = repository
	return backend.Image{Key: k, PullReferences: []string{repository + "@" + k.Digest}}
}

func (h *harness) Publish() { h.published++ }

func (h *harness) Now() time.Time { return h.engine.clock.Now() }

func (h *harness) Advance(d time.Duration) { h.advance(d) }

func (h *harness) CatalogCount(img backend.Image) int { return h.listed[img.Key] }

// Break has the API server fail every creation, so that no worker can start.
func (h *harness) Break() {
	h.broken = true
	h.onCreate = func(client.Object) error { return errors.New("connection refused") }
}

func (h *harness) Mend() { h.broken, h.onCreate = false, nil }

// Work completes the catalog Jobs, and has a match worker empty the queue.
func (h *harness) Work() {
	h.t.Helper()
	if h.broken {
		_ = h.reconcileJobs(h.t.Context()) // fails with the API server's error
		return
	}
	for _, job := range h.jobs("catalog") {
		if len(job.Status.Conditions) == 0 {
			h.catalogs(&job)
		}
	}
	h.runJobsOnce()
	if h.published > 0 {
		h.matches()
	}
	h.runJobsOnce()
}

// catalogs completes a catalog Job.
func (h *harness) catalogs(job *batchv1.Job) {
	h.t.Helper()
	record, err := h.Store().JobByUID(h.t.Context(), string(job.UID))
	h.must(err)
	if strings.HasSuffix(h.repositories[record.Key], "failing") {
		h.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"the registry does not have it"}`))
		h.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
		return
	}
	h.listed[record.Key]++
	h.saveCatalog(backend.Image{Key: record.Key, Scope: record.Scope})
	h.RecordCatalog(h.t.Context(), record)
	h.setEndCondition(job, batchv1.JobComplete, "Completed", "")
}

// matches has a match worker install the newest database and match all queued images.
func (h *harness) matches() {
	h.t.Helper()
	database := build(h.published)
	if h.opened != database {
		h.reportInstalled(database)
		h.opened = database
	}
	now := h.engine.clock.Now()
	leases, err := h.Store().LeaseMatches(h.t.Context(), Engine, "worker", 100, now, now.Add(leaseTime))
	h.must(err)
	for _, lease := range leases {
		var found []workerapi.Finding
		for k, repository := range h.repositories {
			if lease.PlatformDigest != platformDigest(backend.Image{Key: k}) || !strings.HasSuffix(repository, "vulnerable") {
				continue
			}
			for i := range h.published {
				f := openssl
				f.ID = fmt.Sprintf("CVE-2026-%04d", i)
				found = append(found, f)
			}
		}
		h.must(h.SaveReport(h.t.Context(), lease, report(h.published, found...)))
	}
}

// TestContract: the Grype engine fulfills the contract of all engines.
func TestContract(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		return &harness{engine: newEngine(t), repositories: map[image.Key]string{}, listed: map[image.Key]int{}}
	})
}
