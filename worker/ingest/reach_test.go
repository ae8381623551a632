package ingest_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// dialError wraps an error of connecting in the same way as net.
func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// TestDefaultDenyEgress checks that a worker without egress reports the cause within two minutes, before it pulls anything.
func TestDefaultDenyEgress(t *testing.T) {
	server := fixture.NewIngest(t)
	for what, c := range map[string]struct {
		err  error
		want string // in the message; empty if the work continues
	}{
		"packets to the server are dropped": {dialError(os.ErrDeadlineExceeded), "must allow the operator's namespace, TCP port "},
		"packets are rejected by the host":  {dialError(syscall.EHOSTUNREACH), "must allow the operator's namespace, TCP port "},
		"packets are not permitted":         {dialError(syscall.EPERM), "must allow the operator's namespace, TCP port "},
		"DNS is dropped":                    {dialError(&net.DNSError{Name: "manager.svc", Err: "i/o timeout", IsTimeout: true}), "the name manager.svc cannot be resolved: if a NetworkPolicy"},
		"DNS knows no such name":            {dialError(&net.DNSError{Name: "manager.svc", Err: "no such host", IsNotFound: true}), "there is no host of the name manager.svc"},
		"connections are refused":           {dialError(syscall.ECONNREFUSED), "is not running, or a NetworkPolicy rejects connections from pods of this namespace: it must allow the operator's namespace, TCP port "},
		"a connection is reset":             {dialError(syscall.ECONNRESET), ""},
	} {
		t.Run(what, func(t *testing.T) {
			fake := clock.NewFake(time.Now())
			start := fake.Now()
			c1, err := ingest.New(ingest.Config{
				Server: server.URL, CA: server.CA, TokenFile: server.TokenFile, Clock: fake, Log: slog.New(slog.DiscardHandler),
				Dial: func(context.Context, string, string) (net.Conn, error) {
					_ = fake.Sleep(t.Context(), 10*time.Second) // the timeout of a connection
					return nil, c.err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = c1.CheckReachable(t.Context())
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v, want that the work goes on", err)
				}
				return
			}
			described := failure.Describe(err, workerapi.ReasonCatalogFailed)
			if described.Reason != workerapi.ReasonIngestUnreachable || !strings.Contains(described.Message, c.want) || !errors.Is(err, ingest.ErrUnreachable) {
				t.Errorf("got %s: %s, want %s and %q", described.Reason, described.Message, workerapi.ReasonIngestUnreachable, c.want)
			}
			if waited := fake.Now().Sub(start); waited > 115*time.Second {
				t.Errorf("it is said after %s, too late for two minutes", waited)
			}
		})
	}
}

// TestReachRetries checks that it is no failure if a policy comes into force a moment after the pod, or the manager restarts.
func TestReachRetries(t *testing.T) {
	for what, away := range map[string]error{"a policy": os.ErrDeadlineExceeded, "a restart": syscall.ECONNREFUSED} {
		t.Run(what, func(t *testing.T) { reachAfterRetries(t, away) })
	}
}

func reachAfterRetries(t *testing.T, away error) {
	server := fixture.NewIngest(t)
	tries := 0
	c, err := ingest.New(ingest.Config{
		Server: server.URL, CA: server.CA, TokenFile: server.TokenFile, Clock: clock.NewFake(time.Now()), Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if tries++; tries < 3 {
				return nil, dialError(away)
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckReachable(t.Context()); err != nil || tries != 3 {
		t.Errorf("got %v after %d tries, want a connection after 3", err, tries)
	}
}
