package preflight

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/test/process"
)

// TestOpeningAnswersProbes: liveness probes succeed, however long it takes to open the store.
func TestOpeningAnswersProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	address, _, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	slow, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	slow.SetMaxOpenConns(1)
	if _, err := slow.ExecContext(t.Context(), `BEGIN EXCLUSIVE`); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := OpenStore(t.Context(), opener(path), address, logr.Discard())
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	g := NewWithT(t)
	g.Eventually(func() (int, error) { return statusOf(t, "http://"+address+"/healthz") }, "5s", "20ms").Should(Equal(http.StatusOK))
	g.Expect(statusOf(t, "http://"+address+"/readyz")).To(Equal(http.StatusServiceUnavailable))
	if _, err := slow.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	g.Eventually(opened, "10s").Should(Receive(BeNil()))
	if _, err := statusOf(t, "http://"+address+"/healthz"); err == nil {
		t.Error("the manager cannot listen there when the store is open: somebody still does")
	}
}

func opener(path string) func(context.Context) (*store.Store, error) {
	return func(ctx context.Context) (*store.Store, error) { return store.OpenSQLite(ctx, path, time.Now) }
}

func statusOf(t *testing.T, url string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestLockedStoreWithoutProbes: a manager that serves no probes waits for its store as well.
func TestLockedStoreWithoutProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first, err := store.OpenSQLite(t.Context(), path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, off := range []string{"0", ""} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := OpenStore(ctx, opener(path), off, logr.Discard()); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("with --health-probe-bind-address=%q: %v, want that it waits", off, err)
		}
		stop, err := ServeNotReady(t.Context(), off, "locked")
		if err != nil {
			t.Fatalf("with --health-probe-bind-address=%q: %v, want no probes", off, err)
		}
		stop()
	}
}
