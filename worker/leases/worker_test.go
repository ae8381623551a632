package leases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/linux"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/leases"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var later = fixture.Built.Add(24 * time.Hour)

// debian returns the match input of an image with one package of Debian 12.
func debian(t *testing.T, name, version string) []byte {
	t.Helper()
	p := pkg.Package{
		Name: name, Version: version, Type: pkg.DebPkg, PURL: "pkg:deb/debian/" + name + "@" + version + "?distro=debian-12",
		Locations: file.NewLocationSet(file.NewLocation("/var/lib/dpkg/status")), Metadata: pkg.DpkgDBEntry{Package: name, Version: version},
	}
	p.SetID()
	raw, err := json.Marshal(input.Compact(&sbom.SBOM{Artifacts: sbom.Artifacts{
		Packages:          pkg.NewCollection(p),
		LinuxDistribution: &linux.Release{ID: "debian", VersionID: "12", Name: "Debian"},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	return fixture.Compress(raw)
}

// bench is a worker with a server, a publisher of databases and a clock.
type bench struct {
	server    *fixture.Ingest
	publisher *fixture.Publisher
	databases *database.Updater
	clock     *clock.Fake
	temp      string
	config    leases.Config
	// The worker's limits of reports in bytes; 0 for those of workerapi.
	maxSent, maxContent int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	b := &bench{
		server:    fixture.NewIngest(t),
		publisher: fixture.Publish(t, fixture.Database(t, fixture.Built)),
		clock:     clock.NewFake(later),
		temp:      t.TempDir(),
	}
	source, err := database.NewSource(b.publisher.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := database.OpenStore(t.TempDir(), b.clock, log)
	if err != nil {
		t.Fatal(err)
	}
	if b.databases, err = database.NewUpdater(store, source, b.clock, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.databases.Close() })
	b.config = leases.Config{Parallel: 2, IdleTimeout: 10 * time.Minute, Deadline: 5 * time.Minute, TempDir: b.temp, Clock: b.clock, Log: log}
	return b
}

func (b *bench) run(ctx context.Context, t *testing.T) error {
	t.Helper()
	client, err := ingest.New(ingest.Config{
		Server: b.server.URL, CA: b.server.CA, TokenFile: b.server.TokenFile, Clock: b.clock, Log: b.config.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := leases.New(b.config, client, b.databases)
	worker.Limit(b.maxSent, b.maxContent)
	return worker.Run(ctx)
}

// ids returns the set of vulnerability IDs in a report.
func ids(r workerapi.Report) map[string]bool {
	all := map[string]bool{}
	for _, f := range r.Findings {
		all[f.ID] = true
	}
	return all
}

func TestWorksUntilThereIsNothingLeft(t *testing.T) {
	b := newBench(t)
	const images = 9
	for i := range images {
		b.server.AddLease(fmt.Sprintf("lease/%d", i), debian(t, "curl", "7.88.1-10"))
	}
	start := b.clock.Now()
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Reports) != images || len(b.server.Failures) > 0 {
		t.Fatalf("%d reports, failures %v; want %d reports", len(b.server.Reports), b.server.Failures, images)
	}
	report := b.server.Reports["lease/3"]
	if got := ids(report); !got["CVE-2023-38545"] || len(got) != 5 {
		t.Errorf("findings %v, want the 5 of curl in Debian 12.0", got)
	}
	if report.Distro != "debian 12" || !report.Database.Built.Equal(fixture.Built) {
		t.Errorf("report of %s with the database of %s, want debian 12 and %s", report.Distro, report.Database.Built, fixture.Built)
	}
	if idle := b.clock.Now().Sub(start); idle < b.config.IdleTimeout {
		t.Errorf("ended after %s, want %s without work first", idle, b.config.IdleTimeout)
	}
	if len(b.server.Statuses) == 0 || b.server.Statuses[0].Installed == nil {
		t.Errorf("statuses %+v, want the installed database to be reported first", b.server.Statuses)
	}
	if entries, _ := os.ReadDir(b.temp); len(entries) > 0 {
		t.Errorf("%d files are left in the temporary directory", len(entries))
	}
}

// TestVulnerabilityIDsAreSent: the server gets the IDs of each database once. A server that does not take them gets reports all the same.
func TestVulnerabilityIDsAreSent(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("one", debian(t, "curl", "7.88.1-10"))
	sent := map[string]int{}
	isRefused := true
	b.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/vulnerability-ids") {
			return false
		}
		sent[r.URL.Path]++
		if isRefused {
			isRefused = false
			_, _ = io.Copy(io.Discard, r.Body)
			http.Error(w, "no", http.StatusConflict)
			return true
		}
		return false
	}
	newest := fixture.Built.Add(48 * time.Hour)
	b.server.OnReport = func() {
		b.publisher.Replace(fixture.Database(t, newest))
		b.server.Wanted = newest
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Reports) != 1 || len(b.server.Failures) > 0 {
		t.Errorf("%d reports and the failures %v, want the report", len(b.server.Reports), b.server.Failures)
	}
	ids := b.server.VulnerabilityIDs[newest.UTC().Format(time.RFC3339Nano)]
	if !strings.Contains(ids, "\nCVE-2023-38545\n") || len(b.server.VulnerabilityIDs) != 1 {
		t.Errorf("%d lists, that of the newest database is %.80q; want that one only", len(b.server.VulnerabilityIDs), ids)
	}
	if len(sent) != 2 {
		t.Errorf("sent %v, want a list of each database", sent)
	}
	for path, times := range sent {
		if times != 1 {
			t.Errorf("%s is sent %d times, want once", path, times)
		}
	}
}

func TestOneBadImageDoesNotStopTheOthers(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("not-compressed", []byte("{}"))
	b.server.AddLease("not-an-sbom", fixture.Compress([]byte(`{"hello": "world"}`)))
	b.server.AddLease("truncated", debian(t, "curl", "7.88.1-10")[:50])
	b.server.AddLease("bad-metadata", fixture.Compress([]byte(`{"schema":{"version":"16.0.0","url":"https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.0.0.json"},"artifacts":[{"id":"a","metadataType":"dpkg-db-entry","metadata":7}]}`)))
	b.server.AddLease("good", debian(t, "curl", "7.88.1-10"))
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	for _, lease := range []string{"not-compressed", "not-an-sbom", "truncated", "bad-metadata"} {
		f := b.server.Failures[lease]
		if f.Reason != workerapi.ReasonMatchFailed || f.Message == "" {
			t.Errorf("%s: failure %+v, want %s with a message", lease, f, workerapi.ReasonMatchFailed)
		}
	}
	if len(b.server.Reports) != 1 || len(b.server.Reports["good"].Findings) == 0 {
		t.Errorf("reports %v, want the one of the good image", b.server.Reports)
	}
}

// TestDatabaseFailure checks that a database that cannot be read leads to a failure, never to a report without findings.
func TestDatabaseFailure(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("one", debian(t, "curl", "7.88.1-10"))
	b.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			// The database is closed after the worker has leased the image.
			b.databases.DB().Close()
		}
		return false
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Reports) > 0 {
		t.Errorf("a report was made without a database: %+v", b.server.Reports)
	}
	if f := b.server.Failures["one"]; f.Reason != workerapi.ReasonDatabaseUnreadable {
		t.Errorf("failure %+v, want %s", f, workerapi.ReasonDatabaseUnreadable)
	}
}

// TestServerWantsANewerDatabase checks that the worker installs a newer build before it continues, and that later reports are made
// with it.
func TestServerWantsANewerDatabase(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("one", debian(t, "openssl", "3.0.9-1"))
	next := fixture.Database(t, later, fixture.NextAdvisoriesDir())
	calls := 0
	b.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == workerapi.PathLeases {
			if calls++; calls == 1 {
				b.publisher.Replace(next)
				b.server.Wanted = later
			}
		}
		return false
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	report := b.server.Reports["one"]
	if !report.Database.Built.Equal(later) || !ids(report)["CVE-2099-10001"] {
		t.Errorf("report with the database of %s, want %s and CVE-2099-10001", report.Database.Built, later)
	}
}

// TestNewerDatabaseIsUnavailable checks that the listing is read repeatedly, but not too often, while it lags behind the server.
func TestNewerDatabaseIsUnavailable(t *testing.T) {
	b := newBench(t)
	b.server.Wanted = later
	b.server.AddLease("one", debian(t, "openssl", "3.0.9-1"))
	start := b.clock.Now()
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Reports) > 0 {
		t.Error("the image was matched with a database that the server does not want")
	}
	most := int(b.clock.Now().Sub(start)/(10*time.Second)) + 2
	if n := len(b.server.Statuses); n < 2 || n > most {
		t.Errorf("%d looks at the listing in %s, want more than one and at most %d", n, b.clock.Now().Sub(start), most)
	}
}

func TestNoDatabaseAtAll(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(filepath.Join(b.publisher.Dir(), "v6", "latest.json"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.server.AddLease("one", debian(t, "openssl", "3.0.9-1"))
	err := b.run(t.Context(), t)
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != workerapi.ReasonDatabaseUnreadable {
		t.Errorf("got %v, want a failure with %s", err, workerapi.ReasonDatabaseUnreadable)
	}
	if len(b.server.Statuses) == 0 || !strings.Contains(b.server.Statuses[0].Error, "not readable") {
		t.Errorf("statuses %+v, want the reason", b.server.Statuses)
	}
}

// TestServerRestarts checks that no report is lost if the server is unavailable for each request at first.
func TestServerRestarts(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("one", debian(t, "curl", "7.88.1-10"))
	away := map[string]int{}
	b.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if away[r.Method+r.URL.Path]++; away[r.Method+r.URL.Path] > 2 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Reports["one"].Findings) == 0 || len(b.server.Failures) > 0 {
		t.Errorf("reports %v, failures %v; want the report in spite of it all", b.server.Reports, b.server.Failures)
	}
}

func TestServerStaysAway(t *testing.T) {
	b := newBench(t)
	b.server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	if err := b.run(t.Context(), t); !errors.Is(err, ingest.ErrUnreachable) {
		t.Errorf("got %v, want that the API could not be reached", err)
	}
}

// TestLeaseIsTakenBack checks that no failure is reported for a lease that the server took back, and that other leases continue.
func TestLeaseIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.server.AddLease("one", debian(t, "curl", "7.88.1-10"))
	b.server.AddLease("two", debian(t, "curl", "7.88.1-10"))
	b.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/one/") {
			_, _ = io.Copy(io.Discard, r.Body)
			http.Error(w, "not yours any more", http.StatusConflict)
			return true
		}
		return false
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if len(b.server.Failures) > 0 || len(b.server.Reports) != 1 {
		t.Errorf("reports %v, failures %v; want the report of the other lease only", len(b.server.Reports), b.server.Failures)
	}
}

// TestReportIsRefused checks that a refused report ends the lease with a failure after one attempt.
func TestReportIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		status int
		want   workerapi.Failure
	}{
		"because it is too large": {http.StatusRequestEntityTooLarge, workerapi.Failure{
			Reason:  workerapi.ReasonMatchFailed,
			Message: "the report is too large: 5 findings: PUT /v1/match/leases/one/report: the ingest API answered 413 Request Entity Too Large: no",
		}},
		"for another reason": {http.StatusUnprocessableEntity, workerapi.Failure{
			Reason:  workerapi.ReasonUploadRefused,
			Message: "PUT /v1/match/leases/one/report: the ingest API answered 422 Unprocessable Entity: no",
		}},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.server.AddLease("one", debian(t, "curl", "7.88.1-10"))
			var attempts int
			b.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/report") {
					attempts++
					_, _ = io.Copy(io.Discard, r.Body)
					http.Error(w, "no", c.status)
					return true
				}
				return false
			}
			if err := b.run(t.Context(), t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.server.Failures["one"]); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
			if attempts != 1 {
				t.Errorf("the report was sent %d times, want once", attempts)
			}
		})
	}
}

// TestReportIsTooLarge checks that a report beyond a limit is not sent, and that other images are not affected.
func TestReportIsTooLarge(t *testing.T) {
	for what, limit := range map[string]func(*bench){
		"as sent":             func(b *bench) { b.maxSent = 500 },
		"after decompression": func(b *bench) { b.maxContent = 1000 },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			limit(b)
			b.server.AddLease("large", debian(t, "curl", "7.88.1-10"))
			b.server.AddLease("small", debian(t, "nothing-known", "1"))
			var sent []string
			b.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/report") {
					sent = append(sent, r.URL.Path)
				}
				return false
			}
			if err := b.run(t.Context(), t); err != nil {
				t.Fatal(err)
			}
			want := map[string]workerapi.Failure{"large": {Reason: workerapi.ReasonMatchFailed, Message: "the report is too large: 5 findings"}}
			if diff := cmp.Diff(want, b.server.Failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"/v1/match/leases/small/report"}, sent); diff != "" {
				t.Errorf("reports sent (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStop checks that a worker that must stop begins no new match and returns no error.
func TestStop(t *testing.T) {
	b := newBench(t)
	b.config.Parallel = 1
	for i := range 4 {
		b.server.AddLease(fmt.Sprint(i), debian(t, "curl", "7.88.1-10"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			cancel()
		}
		return false
	}
	if err := b.run(ctx, t); err != nil {
		t.Errorf("stopping is not an error: %v", err)
	}
	if len(b.server.Failures) > 0 || len(b.server.Reports) > 2 {
		t.Errorf("%d reports, failures %v; want no failures and the rest left to others", len(b.server.Reports), b.server.Failures)
	}
}

// hangMatch makes the match of a lease block: it replaces the SBOM's file by a pipe that nothing writes to. The channel receives its path.
func (b *bench) hangMatch(lease string, sbom []byte) <-chan string {
	pipe := make(chan string, 1)
	b.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/"+lease+"/") {
			return false
		}
		w.Header().Set("Content-Type", workerapi.ContentTypeZstd)
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		// Wait until the worker has created the file.
		var files []string
		for len(files) == 0 && r.Context().Err() == nil {
			files, _ = filepath.Glob(filepath.Join(b.temp, "*"))
		}
		if len(files) == 0 {
			return true
		}
		_ = os.Remove(files[0])
		_ = syscall.Mkfifo(files[0], 0o600)
		_, _ = w.Write(sbom)
		pipe <- files[0]
		return true
	}
	return pipe
}

// fireTimeouts ends the timeouts of at most d as soon as there is one.
func (b *bench) fireTimeouts(ctx context.Context, d time.Duration) {
	for b.clock.Fire(d) == 0 && ctx.Err() == nil {
		runtime.Gosched()
	}
}

// TestHungMatchDoesNotStopTheOthers checks that other images are matched while one match hangs. After its deadline, that match has failed,
// and the worker ends.
func TestHungMatchDoesNotStopTheOthers(t *testing.T) {
	b := newBench(t)
	const others = 9
	hung := debian(t, "curl", "7.88.1-10")
	b.server.AddLease("hung", hung)
	path := b.hangMatch("hung", hung)
	matched := make(chan struct{}, others)
	b.server.OnReport = func() { matched <- struct{}{} }
	ended := make(chan error, 1)
	go func() { ended <- b.run(t.Context(), t) }()
	pipe := <-path
	for i := range others {
		b.server.AddLease(fmt.Sprint(i), debian(t, "curl", "7.88.1-10"))
	}
	for n := range others {
		select {
		case <-matched:
		case <-time.After(20 * time.Second):
			t.Fatalf("while one match hangs, %d of %d other images are matched, want all", n, others)
		}
	}
	b.fireTimeouts(t.Context(), b.config.Deadline+10*time.Second)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the worker ends with %v, want that another one simply goes on", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the worker goes on with a match that cannot be ended")
	}
	if f := b.server.Failures["hung"]; f.Reason != workerapi.ReasonMatchTimedOut || !strings.Contains(f.Message, "grype.match.deadline") {
		t.Errorf("failure %+v, want %s with what to do", f, workerapi.ReasonMatchTimedOut)
	}
	// The abandoned match must end before the test's directory is removed.
	if writer, err := os.OpenFile(pipe, os.O_WRONLY, 0); err != nil || writer.Close() != nil {
		t.Error(err)
	}
	for files := []string{pipe}; len(files) > 0; {
		files, _ = filepath.Glob(filepath.Join(b.temp, "*"))
	}
}

// TestSlowMatchIsEnded checks that a match that ends after its deadline has failed, and that the worker continues.
func TestSlowMatchIsEnded(t *testing.T) {
	b := newBench(t)
	b.config.Parallel = 1
	slow := debian(t, "curl", "7.88.1-10")
	b.server.AddLease("slow", slow)
	b.server.AddLease("quick", debian(t, "curl", "7.88.1-10"))
	path := b.hangMatch("slow", slow)
	ended := make(chan error, 1)
	go func() { ended <- b.run(t.Context(), t) }()
	pipe := <-path
	b.fireTimeouts(t.Context(), b.config.Deadline)
	// The match goes on, with an input that ends too early.
	if writer, err := os.OpenFile(pipe, os.O_WRONLY, 0); err != nil || writer.Close() != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if f := b.server.Failures["slow"]; f.Reason != workerapi.ReasonMatchTimedOut {
		t.Errorf("failure %+v, want %s", f, workerapi.ReasonMatchTimedOut)
	}
	if len(b.server.Reports["quick"].Findings) == 0 {
		t.Errorf("reports %v, want that of the other image", b.server.Reports)
	}
}

// TestLeasesNoMoreThanItMatches checks that a worker leases only what it can match at once, so that waiting images can be assigned to
// other namespaces first. It also checks that the worker says which leases it has in progress, since the server takes back all others.
func TestLeasesNoMoreThanItMatches(t *testing.T) {
	b := newBench(t)
	for i := range 5 {
		b.server.AddLease(fmt.Sprint(i), debian(t, "curl", "7.88.1-10"))
	}
	leased, most := 0, 0
	b.server.OnLeases = func(n int, held []string) {
		if inProgress := leased - len(b.server.Reports); len(held) < inProgress {
			t.Errorf("the worker holds %q, want all %d leases in progress", held, inProgress)
		}
		leased += n
		most = max(most, leased-len(b.server.Reports))
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if leased != 5 || most > b.config.Parallel {
		t.Errorf("%d images were leased, and %d at a time, want 5 and at most %d", leased, most, b.config.Parallel)
	}
}

// TestInstallingWorkerReportsThatItIsAlive checks the reports during the installation of a database, which may take long.
func TestInstallingWorkerReportsThatItIsAlive(t *testing.T) {
	b := newBench(t)
	b.publisher.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ".json") {
			b.fireTimeouts(r.Context(), time.Minute)
		}
		return false
	}
	if err := b.run(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	if b.server.AliveReports == 0 {
		t.Error("while a database is being installed for more than a minute, the worker makes no request")
	}
}
