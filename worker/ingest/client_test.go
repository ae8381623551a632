package ingest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func client(t *testing.T, server *fixture.Ingest, clock clock.Clock) *ingest.Client {
	t.Helper()
	c, err := ingest.New(ingest.Config{
		Server: server.URL, CA: server.CA, TokenFile: server.TokenFile, Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	server := fixture.NewIngest(t)
	for what, c := range map[string]struct{ server, ca, want string }{
		"plain HTTP":         {"http://manager", server.CA, workerapi.EnvServer},
		"no URL":             {"", server.CA, workerapi.EnvServer},
		"credentials":        {"https://user:secret@manager", server.CA, workerapi.EnvServer},
		"no authority":       {server.URL, "", workerapi.EnvServerCA},
		"a broken authority": {server.URL, "-----BEGIN CERTIFICATE-----", workerapi.EnvServerCA},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := ingest.New(ingest.Config{Server: c.server, CA: c.ca})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want an error that names %s and no secret", err, c.want)
			}
		})
	}
}

// TestUnavailableServer checks that a call is retried while the manager restarts, and that the body is sent again from its start.
func TestUnavailableServer(t *testing.T) {
	server := fixture.NewIngest(t)
	answers := []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if len(answers) == 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(answers[0])
		answers = answers[1:]
		return true
	}
	file := filepath.Join(t.TempDir(), "sbom")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	fake := clock.NewFake(time.Now())
	start := fake.Now()
	err := client(t, server, fake).PutParts(t.Context(), workerapi.PathCatalogResult, workerapi.ContentTypeCatalog,
		ingest.Bytes([]byte(`{"sbomSize":3,"matchInputSize":4}`+"\n")), ingest.File(file, 7))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(server.SBOM) + string(server.MatchInput); got != "content" {
		t.Errorf("the server got %q, want the whole file", got)
	}
	if waited := fake.Now().Sub(start); waited < 28*time.Second {
		t.Errorf("waited %s in all, want the 7 seconds that the server asked for, four times", waited)
	}
}

// TestRefusalOfALargeBody checks that a large body is not sent if the server refuses it unread.
func TestRefusalOfALargeBody(t *testing.T) {
	server := fixture.NewIngest(t)
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "another result", http.StatusConflict)
		return true
	}
	const size = 32 << 20
	var read atomic.Int64
	body := ingest.Part{Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.TeeReader(io.LimitReader(zeros{}, size), counter{&read})), nil
	}}
	err := client(t, server, clock.NewFake(time.Now())).PutParts(t.Context(), workerapi.PathCatalogResult, workerapi.ContentTypeCatalog, body)
	if !ingest.HasStatus(err, http.StatusConflict) {
		t.Errorf("got %v, want the server's answer", err)
	}
	if read.Load() != size {
		t.Errorf("%d bytes were read, want %d: for the digest only", read.Load(), size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counter struct{ bytes *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) { c.bytes.Add(int64(len(p))); return len(p), nil }

// TestDeadline checks that a call that is retried until its deadline ends with IngestUnreachable, whatever temporary answer was the last.
func TestDeadline(t *testing.T) {
	for _, code := range []int{http.StatusBadGateway, http.StatusTooManyRequests, http.StatusRequestTimeout} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			server := fixture.NewIngest(t)
			calls := 0
			server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				calls++
				w.WriteHeader(code)
				return true
			}
			fake := clock.NewFake(time.Now())
			start := fake.Now()
			err := client(t, server, fake).Post(t.Context(), workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil)
			if !errors.Is(err, ingest.ErrUnreachable) || ingest.IsRefused(err) {
				t.Errorf("got %v (refused: %t), want that the API could not be reached", err, ingest.IsRefused(err))
			}
			if waited := fake.Now().Sub(start); waited < ingest.Deadline || waited > ingest.Deadline+time.Minute || calls > 60 {
				t.Errorf("gave up after %s and %d calls, want about %s and less than 60", waited, calls, ingest.Deadline)
			}
		})
	}
}

// TestNoRoomUntilTheDeadline checks that a server without room for an upload has a reason of its own, with the setting in its message.
func TestNoRoomUntilTheDeadline(t *testing.T) {
	server := fixture.NewIngest(t)
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "too many uploads (ingest.spoolSizePerNamespace)", http.StatusInsufficientStorage)
		return true
	}
	fake := clock.NewFake(time.Now())
	start := fake.Now()
	err := client(t, server, fake).PutBytes(t.Context(), workerapi.PathCatalogResult, []byte("x"))
	if err == nil || errors.Is(err, ingest.ErrUnreachable) || ingest.IsRefused(err) {
		t.Fatalf("got %v, want an error about room alone", err)
	}
	got := failure.Describe(err, workerapi.ReasonCatalogFailed)
	if got.Reason != workerapi.ReasonSpoolBudget || !strings.Contains(got.Message, "ingest.spoolSizePerNamespace") {
		t.Errorf("got %s: %s, want %s with the setting's name", got.Reason, got.Message, workerapi.ReasonSpoolBudget)
	}
	if waited := fake.Now().Sub(start); waited < ingest.Deadline {
		t.Errorf("gave up after %s, want %s at least", waited, ingest.Deadline)
	}
}

// TestNoRoomAndThenNoConnection checks that the whole call determines the reason: a lost connection in the last attempt does not hide
// that the server had no room.
func TestNoRoomAndThenNoConnection(t *testing.T) {
	server := fixture.NewIngest(t)
	fake := clock.NewFake(time.Now())
	start := fake.Now()
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		if fake.Now().Sub(start) >= ingest.Deadline {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		http.Error(w, "too many uploads (ingest.spoolSizePerNamespace)", http.StatusInsufficientStorage)
		return true
	}
	err := client(t, server, fake).PutBytes(t.Context(), workerapi.PathCatalogResult, []byte("x"))
	got := failure.Describe(err, workerapi.ReasonCatalogFailed)
	if got.Reason != workerapi.ReasonSpoolBudget || !strings.Contains(got.Message, "ingest.spoolSizePerNamespace") || !strings.Contains(got.Message, "EOF") {
		t.Errorf("got %s: %s, want %s with the setting's name and the last error", got.Reason, got.Message, workerapi.ReasonSpoolBudget)
	}
}

func TestUnreachableServer(t *testing.T) {
	server := fixture.NewIngest(t)
	server.URL = "https://127.0.0.1:1"
	err := client(t, server, clock.NewFake(time.Now())).Post(t.Context(), workerapi.PathDatabase, nil, nil)
	if !errors.Is(err, ingest.ErrUnreachable) {
		t.Errorf("got %v, want that the API could not be reached", err)
	}
}

func TestRefusalsAreFinal(t *testing.T) {
	for _, code := range []int{400, 401, 403, 404, 409, 410, 413} {
		server := fixture.NewIngest(t)
		calls := 0
		server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			calls++
			http.Error(w, "because\nof this", code)
			return true
		}
		err := client(t, server, clock.NewFake(time.Now())).PutBytes(t.Context(), "/v1/x", []byte("x"))
		if calls != 1 || !ingest.IsRefused(err) || !strings.Contains(err.Error(), "because of this") {
			t.Errorf("%d: %d calls and %v, want one call and the server's words", code, calls, err)
		}
		if gone := code == 404 || code == 409 || code == 410; ingest.IsGone(err) != gone {
			t.Errorf("%d: gone is %v, want %v", code, ingest.IsGone(err), gone)
		}
	}
}

// TestTokenIsReadForEveryRequest checks that each attempt sends the current token, since the kubelet renews it.
func TestTokenIsReadForEveryRequest(t *testing.T) {
	server := fixture.NewIngest(t)
	if err := os.WriteFile(server.TokenFile, []byte("expired"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer expired" {
			_ = os.WriteFile(server.TokenFile, []byte(fixture.Token), 0o600)
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	if err := client(t, server, clock.NewFake(time.Now())).Post(t.Context(), workerapi.PathDatabase, workerapi.DatabaseStatus{}, nil); err != nil {
		t.Errorf("the second attempt should present the new token: %v", err)
	}
}

// TestTokenGoesToTheServerOnly checks that neither the target of a redirect nor a server with another certificate gets the token.
func TestTokenGoesToTheServerOnly(t *testing.T) {
	stolen := ""
	thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") }))
	defer thief.Close()
	server := fixture.NewIngest(t)
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		return true
	}
	err := client(t, server, clock.NewFake(time.Now())).Post(t.Context(), workerapi.PathDatabase, nil, nil)
	if err == nil || stolen != "" {
		t.Errorf("a redirect: got %v and the thief got %q, want an error and nothing", err, stolen)
	}

	// The certificate of the test server is not valid for this name.
	other := fixture.NewIngest(t)
	other.URL = strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	reached := false
	other.Intercept = func(http.ResponseWriter, *http.Request) bool { reached = true; return true }
	err = client(t, other, clock.NewFake(time.Now())).Post(t.Context(), workerapi.PathDatabase, nil, nil)
	if err == nil || reached {
		t.Errorf("a certificate for another name: got %v, reached %v; want an error before any request", err, reached)
	}
}

// TestGet checks that a broken transfer is repeated, unlike an error of the reader.
func TestGet(t *testing.T) {
	server := fixture.NewIngest(t)
	server.AddLease("one", []byte("content"))
	calls := 0
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		if calls++; calls > 1 {
			return false
		}
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("cont"))
		panic(http.ErrAbortHandler)
	}
	var got []byte
	path := strings.Replace(workerapi.PathLeaseInput, "{lease}", "one", 1)
	c := client(t, server, clock.NewFake(time.Now()))
	err := c.Get(t.Context(), path, func(body io.Reader) (err error) {
		got, err = io.ReadAll(body)
		return err
	})
	if err != nil || string(got) != "content" || calls != 2 {
		t.Errorf("got %q and %v after %d calls, want the content after 2", got, err, calls)
	}
	disliked := errors.New("disliked")
	if err := c.Get(t.Context(), path, func(io.Reader) error { return disliked }); !errors.Is(err, disliked) || calls != 3 {
		t.Errorf("got %v after %d calls, want the reader's error after 3", err, calls)
	}
}

func TestContextEndsTheWaiting(t *testing.T) {
	server := fixture.NewIngest(t)
	ctx, cancel := context.WithCancel(t.Context())
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		cancel()
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	if err := client(t, server, clock.System{}).Post(ctx, workerapi.PathDatabase, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
