package grype

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// refusalLifetime is how long a build that a worker refused is not offered again, unless the listing changes before.
const refusalLifetime = 10 * time.Minute

// maxListingBytes bounds latest.json, which has a few hundred bytes.
const maxListingBytes = 1 << 20

// replacedLifetime is how long a Grype version is refused after another one replaced it. Match workers report their version themselves: an invented
// one cannot block the true one for good.
const replacedLifetime = time.Hour

// dataState is what the manager knows about vulnerability databases. It is rebuilt after a restart.
type dataState struct {
	mu sync.Mutex
	// listed is the newest build according to the listing; zero until the listing was read.
	listed workerapi.Database
	// listingProblem is why the last attempt to read the listing failed; empty if it succeeded.
	listingProblem string
	// refused is the build time of a database that a worker could not install. refusedProblem is the reason.
	refused        time.Time
	refusedProblem string
	refusedAt      time.Time
	// crashed is when a match worker last failed, crashedProblem why, and crashes how many failed in a row.
	crashed        time.Time
	crashedProblem string
	crashes        int
	// workers holds why each match worker does not start, by the UID of its Job; empty for a worker that runs.
	workers map[string]string
}

// DataProblem implements backend.DataReporter.
func (b *Backend) DataProblem(current store.DataVersion) string {
	problem := b.data.problem(current.Built)
	age := b.Clock.Since(current.Built)
	if future := backend.FutureData(current.Built, b.Clock.Now()); future != "" {
		return future
	}
	if current.Built.IsZero() || age <= b.Config.Grype.Database.MaxAge.Duration {
		return problem
	}
	// Grype itself refuses data of this age. The operator keeps matching images with the data that it has.
	return fmt.Sprintf("the vulnerability database is %d hours old, built at %s: newer vulnerabilities are not found (grype.database.maxAge is %s). %s",
		int(age.Hours()), current.Built.UTC().Format(time.RFC3339), b.Config.Grype.Database.MaxAge.Duration,
		cmp.Or(problem, "No newer one is published at grype.database.url in the operator's configuration: see to the mirror there, or name another"))
}

// MaxDataAge implements backend.DataReporter.
func (b *Backend) MaxDataAge() time.Duration { return b.Config.Grype.Database.MaxAge.Duration }

// problem returns why newer data is not in use, or "". A failed installation no longer matters once the listing has no build newer than
// current.
func (d *dataState) problem(current time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := d.refusedProblem
	if !current.IsZero() && !d.listed.Built.IsZero() && !d.listed.Built.After(current) {
		refused = ""
	}
	return cmp.Or(d.startProblem(), refused, d.crashedProblem, d.listingProblem)
}

// workerProblem returns why images wait for a match worker, or "" if nothing is wrong with the workers.
func (d *dataState) workerProblem() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.startProblem(), d.crashedProblem)
}

// startProblem returns why match workers do not start, or "" if at least one of them runs. The caller holds mu.
func (d *dataState) startProblem() (why string) {
	for _, uid := range slices.Sorted(maps.Keys(d.workers)) {
		if why = d.workers[uid]; why == "" {
			return ""
		}
	}
	return why
}

// setWorkerProblem records why a match worker does not start; nil if it runs. It reports whether that begins or ends the state in which no
// worker runs.
func (d *dataState) setWorkerProblem(uid string, problem *backend.Failure) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, why := d.startProblem(), ""
	if problem != nil {
		why = "the match worker does not start: " + problem.Error()
	}
	if d.workers == nil {
		d.workers = map[string]string{}
	}
	d.workers[uid] = why
	return (before == "") != (d.startProblem() == "")
}

// removeWorker forgets a match worker. It reports whether that begins or ends the state in which no worker runs.
func (d *dataState) removeWorker(uid string) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.startProblem()
	delete(d.workers, uid)
	return (before == "") != (d.startProblem() == "")
}

// listingRetry is the delay before another attempt to read the listing. A shorter poll interval takes precedence.
const listingRetry = time.Minute

// RunListingPolls polls the listing until the context ends.
func (b *Backend) RunListingPolls(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		_ = b.Loops.Run("listing", func() error { return b.pollListing(ctx) }) // DataProblem reports the error
		timer.Reset(b.nextPoll())
	}
}

// nextPoll returns the time until the next poll of the listing.
func (b *Backend) nextPoll() time.Duration {
	b.data.mu.Lock()
	defer b.data.mu.Unlock()
	if b.data.listingProblem != "" {
		return min(b.Config.Grype.Database.PollInterval.Duration, listingRetry)
	}
	return b.Config.Grype.Database.PollInterval.Duration
}

// pollListing records the newest build, and wakes the Job loop if it is another one than before.
func (b *Backend) pollListing(ctx context.Context) error {
	listed, err := b.readListing(ctx)
	b.data.mu.Lock()
	defer b.data.mu.Unlock()
	if err != nil {
		text := failure.Line(err.Error()) // a redirect's target that is no URL is part of the error, and may contain a token
		problem := "the listing of vulnerability databases cannot be read: " + text
		if b.data.listingProblem == "" && ctx.Err() == nil {
			b.Log.Info("The listing of vulnerability databases cannot be read", "error", text)
		}
		b.data.listingProblem = problem
		return err
	}
	b.data.listingProblem = ""
	if listed.Built.Equal(b.data.listed.Built) && listed.Checksum == b.data.listed.Checksum {
		return nil
	}
	b.Log.Info("There is another vulnerability database", "built", listed.Built, "schema", listed.SchemaVersion)
	b.data.listed = listed
	b.data.refused, b.data.refusedProblem = time.Time{}, ""
	b.data.crashed, b.data.crashedProblem, b.data.crashes = time.Time{}, "", 0
	b.requestJobRun()
	return nil
}

// listing is Grype's latest.json (https://github.com/anchore/grype, grype/db/v6/distribution/latest.go).
type listing struct {
	SchemaVersion string    `json:"schemaVersion"`
	Built         time.Time `json:"built"`
	Checksum      string    `json:"checksum"`
}

func (b *Backend) readListing(ctx context.Context) (workerapi.Database, error) {
	address, err := listingURL(b.Config.Grype.Database.URL)
	if err != nil {
		return workerapi.Database{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return workerapi.Database{}, err
	}
	response, err := b.HTTP.Do(request)
	if err != nil {
		return workerapi.Database{}, withoutURL(request.URL, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return workerapi.Database{}, fmt.Errorf("%s answers %s", request.URL.Host, response.Status)
	}
	var latest listing
	if err := json.NewDecoder(io.LimitReader(response.Body, maxListingBytes)).Decode(&latest); err != nil {
		return workerapi.Database{}, fmt.Errorf("%s sends no listing: %w", request.URL.Host, err)
	}
	if latest.Built.IsZero() {
		return workerapi.Database{}, fmt.Errorf("%s names no build time", request.URL.Host)
	}
	return workerapi.Database{Built: latest.Built.UTC(), SchemaVersion: latest.SchemaVersion, Checksum: latest.Checksum}, nil
}

// withoutURL removes the URL from an error of net/http and keeps only its host. A mirror's URL may contain a token, and the text is shown to
// everyone who has a Scanner.
func withoutURL(address *url.URL, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%s: %w", address.Host, err)
}

// listingURL completes the path of the configured URL as Grype and the match worker do. A query stays as it is.
func listingURL(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", errors.New("grype.database.url is not a URL")
	}
	if !strings.HasSuffix(u.Path, ".json") {
		u = u.JoinPath("v6", "latest.json")
	}
	return u.String(), nil
}

// RecordDatabase records the status of a match worker's database and returns the build that the worker should have. An installed
// database becomes the current data unless it is older, see installed. A worker whose Grype version was replaced within the last hour is
// refused with backend.ErrWorkerReplaced. Otherwise two builds of the worker under one tag would alternate in setting the data version.
func (b *Backend) RecordDatabase(ctx context.Context, status workerapi.DatabaseStatus) (time.Time, error) {
	switch replaced, err := b.isReplaced(ctx, status.Tool); {
	case err != nil:
		return time.Time{}, err
	case replaced:
		return time.Time{}, fmt.Errorf("%w (%s)", backend.ErrWorkerReplaced, status.Tool)
	}
	b.recordStatus(ctx, status)
	if status.Installed != nil {
		if err := b.recordInstall(ctx, *status.Installed, status.Tool); err != nil {
			return time.Time{}, err
		}
	}
	current, err := b.Store.DataVersion(ctx, Engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return time.Time{}, err
	}
	return b.data.wantedBuild(b.Clock.Now(), current.Built), nil
}

// recordRefusal records whether a database was refused, and reports whether that is new.
func (b *Backend) recordRefusal(status workerapi.DatabaseStatus) (changed bool) {
	b.data.mu.Lock()
	defer b.data.mu.Unlock()
	before := b.data.refusedProblem
	if status.Error == "" {
		b.data.refused, b.data.refusedProblem = time.Time{}, ""
		return before != ""
	}
	b.Log.Info("A match worker could not install the newest vulnerability database", "error", status.Error)
	b.metrics.installs.WithLabelValues("refused").Inc()
	b.data.refusedProblem = "the newest vulnerability database could not be installed: " + status.Error
	b.data.refusedAt = b.Clock.Now()
	b.data.refused = b.data.listed.Built
	if status.Refused != nil {
		b.data.refused = status.Refused.Built
	}
	return before != b.data.refusedProblem
}

// recordInstall makes a build the current data if it is not older than the current one, or if it is the build in the listing.
func (b *Backend) recordInstall(ctx context.Context, database workerapi.Database, tool string) error {
	version := versionOf(database, tool)
	current, err := b.Store.DataVersion(ctx, Engine)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	case current.Version == version.Version:
		return nil
	case database.Built.Before(current.Built) && !b.data.isListed(database.Built):
		return nil
	}
	b.Log.Info("Reports are made with another vulnerability database from now on", "built", database.Built, "tool", tool)
	// This comes first: a version that is refused too early is current until the next report, but one that is not refused would come back.
	if current.Tool != "" && current.Tool != tool {
		if err := b.Store.AddReplacedTool(ctx, Engine, store.ReplacedTool{Tool: current.Tool, Worker: b.WorkerImage, At: b.Clock.Now()}); err != nil {
			return err
		}
	}
	if err := b.Store.SetDataVersion(ctx, Engine, version); err != nil {
		return err
	}
	b.metrics.installs.WithLabelValues("installed").Inc()
	b.DataChanged(ctx)
	return nil
}

// isReplaced reports whether another Grype version in the same worker image replaced this one within replacedLifetime. Any replica may have recorded
// it. A manager with another worker image, as after going back to the version before, refuses no version.
func (b *Backend) isReplaced(ctx context.Context, tool string) (bool, error) {
	replaced, err := b.Store.ReplacedTools(ctx, Engine)
	return slices.ContainsFunc(replaced, func(r store.ReplacedTool) bool {
		return r.Tool == tool && r.Worker == b.WorkerImage && b.Clock.Since(r.At) < replacedLifetime
	}), err
}

// versionOf names the data by its build time and the version of Grype. The checksum of the archive is no part of the name: a worker that has a
// build keeps it when a mirror offers another archive of that build. Two workers with both archives would otherwise match every image in turns.
func versionOf(database workerapi.Database, tool string) store.DataVersion {
	return store.DataVersion{
		Version: fmt.Sprintf("%s %s", database.Built.UTC().Format(time.RFC3339), tool),
		Built:   database.Built.UTC(), Tool: tool,
	}
}

// WantedDatabase returns the build that a worker with the given build should install first. ok means that the worker may match with the build that
// it has.
func (b *Backend) WantedDatabase(ctx context.Context, built time.Time) (wanted time.Time, ok bool, err error) {
	current, err := b.Store.DataVersion(ctx, Engine)
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	wanted = b.data.wantedBuild(b.Clock.Now(), current.Built)
	return wanted, built.Equal(current.Built) && !wanted.After(built), nil
}

// wantedBuild returns the listed build, or the current one if nothing is listed or the listed build was refused recently.
func (d *dataState) wantedBuild(now, current time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := d.refused.Equal(d.listed.Built) && now.Sub(d.refusedAt) < refusalLifetime
	if d.listed.Built.IsZero() || refused {
		return current
	}
	return d.listed.Built
}

func (d *dataState) isListed(built time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listed.Built.Equal(built)
}

// recordWorkerEnd records how a match worker ended, and reports whether it ended without a failure.
func (d *dataState) recordWorkerEnd(now time.Time, failure *backend.Failure) (well bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if failure.Reason == backend.ReasonUploadMissing || failure.Reason == backend.ReasonJobDeleted { // it was idle, or its Job was deleted on purpose
		d.crashed, d.crashedProblem, d.crashes = time.Time{}, "", 0
		return true
	}
	d.crashes++
	d.crashed, d.crashedProblem = now, "the last match worker failed: "+failure.Error()
	return false
}

// mayStartWorker reports whether another match worker may start. The delay grows with the number of failures in a row.
func (d *dataState) mayStartWorker(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.crashed) >= backoff.After(d.crashes, 10*time.Second, refusalLifetime)
}
