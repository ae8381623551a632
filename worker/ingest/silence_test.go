package ingest_test

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestServerOfALostNode checks that a call does not wait for long on a connection whose other end has disappeared without a word.
func TestServerOfALostNode(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		connections := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
		_ = server.Listener.Close()
		server.Listener, server.EnableHTTP2 = connections, true
		server.StartTLS()
		defer server.Close()
		client, err := ingest.New(ingest.Config{
			Server: "https://example.com", TokenFile: token, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Dial: connections.dial,
			CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		})
		if err != nil {
			t.Fatal(err)
		}
		call := func() time.Duration {
			start := time.Now()
			if err := client.Post(t.Context(), workerapi.PathLeases, workerapi.LeaseRequest{}, &workerapi.LeaseResponse{}); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		call()
		connections.first.lost.Store(true)
		defer connections.first.lost.Store(false) // the server's end closes
		if took := call(); took < 30*time.Second || took > time.Minute {
			t.Errorf("the call took %s, want the time until the lost connection is noticed", took)
		}
	})
}

// pipes is a network in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    sync.Once
	// first is the client's end of the first connection.
	first *lossy
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	end := &lossy{Conn: client}
	if p.first == nil {
		p.first = end
	}
	p.accepted <- server
	return end, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// lossy is a connection that loses what is sent while lost is set.
type lossy struct {
	net.Conn
	lost atomic.Bool
}

func (c *lossy) Write(p []byte) (int, error) {
	if c.lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
