package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// echo starts a server that sends back each line, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer client.Close(); _, _ = io.Copy(client, client) }()
		}
	}()
	return listener.Addr().String()
}

// client is a connection through a proxy.
type client struct {
	net.Conn
	lines *bufio.Reader
}

func connect(t *testing.T, p *Proxy) client {
	t.Helper()
	connection, err := net.Dial("tcp", loopback(p.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return client{connection, bufio.NewReader(connection)}
}

// sends sends a line and returns the line that comes back. Without a line within the time, the error is os.ErrDeadlineExceeded.
func (c client) sends(text string, within time.Duration) (string, error) {
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", err
	}
	return c.receives(within)
}

func (c client) receives(within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Times of the tests: a line comes within soon; a line that does not come within short is held.
const (
	soon  = 20 * time.Second
	short = 300 * time.Millisecond
)

func TestFaultsOfConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, undo func(*Proxy)
		// during is what a client that is connected already receives for a line, and anew what a new client receives.
		during, anew func(t *testing.T, c client)
	}{
		"delayed": {
			fault: func(p *Proxy) { p.Delay(short) }, undo: func(p *Proxy) { p.Delay(0) },
			during: func(t *testing.T, c client) {
				began := time.Now()
				requireLine(t, c, "one")
				if took := time.Since(began); took < 2*short {
					t.Errorf("the line came back after %s, want at least twice %s", took, short)
				}
			},
			anew: func(t *testing.T, c client) { requireLine(t, c, "one") },
		},
		"held, and nothing is lost": {
			fault: func(p *Proxy) { p.Hold(true) }, undo: func(p *Proxy) { p.Hold(false) },
			during: requireHeld, anew: requireHeld,
		},
		"refused": {
			fault: func(p *Proxy) { p.Refuse(true) }, undo: func(p *Proxy) { p.Refuse(false) },
			during: func(t *testing.T, c client) { requireLine(t, c, "one") }, anew: requireClosed,
		},
		"cut": {
			fault: (*Proxy).CutAll, undo: func(*Proxy) {},
			during: requireClosed, anew: func(t *testing.T, c client) { requireLine(t, c, "one") },
		},
		"answered": {
			fault: func(p *Proxy) { p.Answer([]byte("no\n")) }, undo: func(p *Proxy) { p.Answer(nil) },
			during: requireAnswer, anew: requireAnswer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New("127.0.0.1:0", echo(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			before := connect(t, p)
			requireLine(t, before, "zero")
			tt.fault(p)
			tt.during(t, before)
			anew := connect(t, p)
			tt.anew(t, anew)
			tt.undo(p)
			if strings.HasPrefix(name, "held") {
				for _, c := range []client{before, anew} {
					if line, err := c.receives(soon); line != "one" || err != nil {
						t.Errorf("after the end: %q, %v; want the line that was held", line, err)
					}
				}
			}
			requireLine(t, connect(t, p), "two")
		})
	}
}

func requireLine(t *testing.T, c client, text string) {
	t.Helper()
	if line, err := c.sends(text, soon); line != text || err != nil {
		t.Fatalf("sent %q, received %q, %v", text, line, err)
	}
}

func requireHeld(t *testing.T, c client) {
	t.Helper()
	if line, err := c.sends("one", short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("expected nothing, received %q, %v", line, err)
	}
}

func requireClosed(t *testing.T, c client) {
	t.Helper()
	if line, err := c.sends("one", soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("expected a closed connection, received %q, %v", line, err)
	}
}

func requireAnswer(t *testing.T, c client) {
	t.Helper()
	if line, err := c.sends("one", soon); line != "no" || err != nil {
		t.Fatalf("expected the proxy's answer, received %q, %v", line, err)
	}
	if _, err := c.receives(soon); !errors.Is(err, io.EOF) {
		t.Errorf("expected a closed connection, got %v", err)
	}
}

// A proxy whose connections are held, or whose server is away, closes.
func TestClose(t *testing.T) {
	p, err := New("127.0.0.1:0", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, p)
	p.Hold(true)
	requireHeld(t, c)
	p.Close()
	requireClosed(t, c)
	if _, err := net.Dial("tcp", loopback(p.Port)); err == nil {
		t.Error("the proxy still listens")
	}
}
