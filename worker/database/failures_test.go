package database_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// wantGood checks that the last good build is open, returns results, and is the only one on the volume.
func (b *bench) wantGood(t *testing.T, u *database.Updater, status workerapi.DatabaseStatus) {
	t.Helper()
	if status.Installed == nil || !status.Installed.Built.Equal(fixture.Built) || !hasVulnerability(t, u.DB(), "glibc", "CVE-2023-4911") {
		t.Errorf("status %+v, want the last good build to stay in use", status)
	}
	if diff := cmp.Diff([]time.Time{fixture.Built}, built(t, b.store(t))); diff != "" {
		t.Errorf("installed builds (-want +got):\n%s", diff)
	}
	if entries, err := os.ReadDir(b.dir); err != nil || len(entries) != 2 { // the lock and the good version
		t.Errorf("%d entries (%v) on the volume, want nothing left of another build", len(entries), err)
	}
}

// wantRecovery checks that the next build is installed without intervention when the problem is over.
func (b *bench) wantRecovery(t *testing.T, u *database.Updater) {
	t.Helper()
	b.publisher.Intercept = nil
	b.clock.Advance(6 * time.Minute)
	if status := u.Refresh(t.Context()); status.Error != "" || !status.Installed.Built.Equal(later) {
		t.Errorf("status %+v after the fault is over, want the newer build", status)
	}
}

// answerListing answers requests for the listing with listing, and leaves other requests to the publisher.
func (b *bench) answerListing(listing http.HandlerFunc) {
	b.publisher.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "latest.json") {
			return false
		}
		listing(w, r)
		return true
	}
}

// TestUnusableListings checks that a listing cannot make the worker fetch from another address, and that the last good build stays.
func TestUnusableListings(t *testing.T) {
	foreign := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign++ }))
	defer elsewhere.Close()
	names := func(schema, path string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"status": "active", "schemaVersion": %q, "built": %q, "path": %q, "checksum": "sha256:%s"}`,
				schema, later.Format(time.RFC3339), path, strings.Repeat("0", 64))
		}
	}
	for what, c := range map[string]struct {
		listing http.HandlerFunc
		want    string
	}{
		"garbage": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\xff<html>")) }, "is not readable"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write([]byte(`{"path": "`))
			for err == nil {
				_, err = w.Write([]byte(strings.Repeat("x", 4096)))
			}
		}, "is not readable"},
		"a foreign address":           {names("v6.1.4", elsewhere.URL+"/db.tar.zst"), "404"},
		"a foreign host":              {names("v6.1.4", strings.TrimPrefix(elsewhere.URL, "http:")+"/db.tar.zst"), "404"},
		"a file of the worker's own":  {names("v6.1.4", "file:///etc/db.tar.zst"), "404"},
		"a path that climbs out":      {names("v6.1.4", "../../../db.tar.zst"), "404"},
		"a schema of the future":      {names("v7.0.0", "db.tar.zst"), `offers schema "v7.0.0", this worker reads v6`},
		"a build without a time":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status": "active"}`)) }, "no build time"},
		"the server of it is down":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "503"},
		"the connection of it is cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			u := b.updater(t)
			u.Refresh(t.Context())
			b.publisher.Replace(fixture.Database(t, later))
			b.answerListing(c.listing)
			status := u.Refresh(t.Context())
			if !strings.Contains(status.Error, c.want) {
				t.Errorf("status %+v, want an error with %q", status, c.want)
			}
			b.wantGood(t, u, status)
			b.wantRecovery(t, u)
		})
	}
	if foreign > 0 {
		t.Errorf("%d requests went to where a listing says, want none", foreign)
	}
}

// TestIncompleteDownload checks that an incomplete download is refused, and fetched again later.
func TestIncompleteDownload(t *testing.T) {
	for what, c := range map[string]struct {
		rest func(r *http.Request)
		want string
	}{
		"the connection is cut":    {func(*http.Request) { panic(http.ErrAbortHandler) }, "unexpected EOF"},
		"the server stops sending": {func(r *http.Request) { <-r.Context().Done() }, "no data for 200ms"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.source.SetStallTimeout(200 * time.Millisecond)
			u := b.updater(t)
			u.Refresh(t.Context())
			b.publisher.Replace(fixture.Database(t, later))
			b.publisher.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, ".tar.zst") {
					return false
				}
				w.Header().Set("Content-Length", "1000000")
				_, _ = w.Write(make([]byte, 500_000))
				_ = http.NewResponseController(w).Flush()
				c.rest(r)
				return true
			}
			status := u.Refresh(t.Context())
			if !strings.Contains(status.Error, c.want) || !strings.Contains(status.Error, "after 500000 bytes") || status.Refused == nil {
				t.Errorf("status %+v, want the build refused with %q", status, c.want)
			}
			b.wantGood(t, u, status)
			b.wantRecovery(t, u)
		})
	}
}

// TestOldDatabaseIsInstalled checks that a very old database is installed and used. Grype's own command refuses it; here, the manager judges
// its age.
func TestOldDatabaseIsInstalled(t *testing.T) {
	b := newBench(t)
	b.clock.Advance(5 * 365 * 24 * time.Hour)
	u := b.updater(t)
	b.wantGood(t, u, u.Refresh(t.Context()))
}

// TestFullVolume checks that a newer build without enough room is refused with the setting to raise, and that the last good one stays.
func TestFullVolume(t *testing.T) {
	fixture.OnSmallDisk(t, "32m", func(dir string) {
		b := newBench(t)
		b.dir = dir
		u := b.updater(t)
		u.Refresh(t.Context())
		next := fixture.Database(t, later)
		b.publisher.Replace(next)
		for what, room := range map[string]int64{
			"the archive": 16 << 10, "the database": size(t, next.Dist, "v6", "*.tar.zst") + 16<<10,
			"the indexes": size(t, next.Cache, "6", "vulnerability.db") - 8<<10,
		} {
			fill(t, dir, room)
			status := u.Refresh(t.Context())
			if !strings.Contains(status.Error, "raise grype.database.volume.size") {
				t.Errorf("with no room for %s: status %+v, want an error with what to raise", what, status)
			}
			t.Logf("with no room for %s: %s", what, status.Error)
			if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
				t.Fatal(err)
			}
			b.wantGood(t, u, status)
			b.clock.Advance(6 * time.Minute)
		}
		b.wantRecovery(t, u)
	})
}

// fill leaves room bytes free on the disk.
func fill(t *testing.T, dir string, room int64) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, int64(disk.Bavail)*disk.Bsize-room), 0o600); err != nil {
		t.Fatal(err)
	}
}

// size returns the size in bytes of the only file that matches a pattern.
func size(t *testing.T, pattern ...string) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
