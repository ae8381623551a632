// Package proxy is a TCP proxy for tests, between a client and a server that it needs. A test makes it cut, delay, hold or refuse connections,
// answer instead of the server, or swallow answers.
package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// dialTimeout bounds a connection to the server.
const dialTimeout = 10 * time.Second

// Proxy forwards connections to a server. Its methods may be called concurrently.
type Proxy struct {
	// Port is the port that it listens on.
	Port int

	listener net.Listener
	mu       sync.Mutex
	target   string
	pairs    map[*pair]bool
	closed   bool
	refuse   bool
	rule     Rule
	answer   []byte
	delay    time.Duration
	// released is closed when what is held may go on; nil while nothing is held.
	released chan struct{}
	done     sync.WaitGroup
}

// Verdict is what happens to bytes.
type Verdict int

const (
	// Forward forwards them.
	Forward Verdict = iota
	// Cut closes the connection instead.
	Cut
	// Hang forwards nothing of the connection from then on, and leaves it open.
	Hang
	// CutAnswer forwards them to the server, and closes the connection instead of forwarding the server's next bytes.
	CutAnswer
)

// Rule decides about bytes from the client. It is called for each piece that arrives, which may have more than one message.
type Rule func(piece []byte) Verdict

// OnText returns a rule for the pieces that contain a text, such as that of a statement: it applies the verdict to the first of them. happened
// is closed when that is done.
func OnText(text string, verdict Verdict) (rule Rule, happened <-chan struct{}) {
	done := make(chan struct{})
	var once sync.Once
	return func(piece []byte) Verdict {
		decided := Forward
		if bytes.Contains(piece, []byte(text)) {
			once.Do(func() { decided = verdict; close(done) })
		}
		return decided
	}, done
}

// pair is one connection of a client, and the one to the server for it.
type pair struct{ client, server net.Conn }

func (p *pair) close() { _ = p.client.Close(); _ = p.server.Close() }

// New starts a proxy that listens on an address, host:port, and forwards to the server at target. The port 0 means any. Close stops the proxy.
func New(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Port: listener.Addr().(*net.TCPAddr).Port, listener: listener, target: target, pairs: make(map[*pair]bool)}
	p.done.Go(p.accept)
	return p, nil
}

// Start starts a proxy on 127.0.0.1 to a port there, and stops it at the end of the test.
func Start(t testing.TB, port int) *Proxy {
	t.Helper()
	p, err := New("127.0.0.1:0", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func loopback(port int) string {
	server := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	return server.String()
}

// Close closes all connections and stops the proxy.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Hold(false)
	p.CutAll()
	p.done.Wait()
}

// SetTarget makes the proxy forward new connections to another port of 127.0.0.1.
func (p *Proxy) SetTarget(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = loopback(port)
}

// SetRule sets the rule for the bytes of all clients; nil to forward everything.
func (p *Proxy) SetRule(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Refuse makes the proxy close each new connection, or accept them again.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Delay makes each piece wait before it is forwarded, in both directions; 0 for no delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hold makes the proxy forward nothing, in both directions, until it is called with false. Nothing of what arrives meanwhile is lost.
func (p *Proxy) Hold(hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case hold && p.released == nil && !p.closed:
		p.released = make(chan struct{})
	case !hold && p.released != nil:
		close(p.released)
		p.released = nil
	}
}

// Answer makes the proxy answer the next piece of each client with a text and close the connection, instead of forwarding the piece; nil to forward
// everything.
func (p *Proxy) Answer(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = text
}

// CutAll closes all connections. New ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.pairs {
		one.close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve connects a client with the server, and forwards until one side closes its connection.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse
	p.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	one := &pair{client, server}
	p.mu.Lock()
	p.pairs[one] = true
	if p.closed {
		one.close()
	}
	p.mu.Unlock()
	p.forward(one)
}

// pass waits as long as pieces are held or delayed.
func (p *Proxy) pass() {
	p.mu.Lock()
	released, delay := p.released, p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	if released != nil {
		<-released
	}
}

// forward forwards the bytes of a connection until one side closes it.
func (p *Proxy) forward(one *pair) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pairs, one)
	}()
	var cutAnswer, hang sync.Once
	cutting, hanging := make(chan struct{}), make(chan struct{})
	var answers sync.WaitGroup
	answers.Go(func() {
		defer one.close()
		copyPieces(one.client, one.server, func([]byte) bool {
			p.pass()
			return !closed(cutting) && !closed(hanging) || closed(hanging) && wait(one)
		})
	})
	copyPieces(one.server, one.client, func(piece []byte) bool {
		p.pass()
		p.mu.Lock()
		rule, answer := p.rule, p.answer
		p.mu.Unlock()
		if answer != nil {
			_, _ = one.client.Write(answer)
			return false
		}
		verdict := Forward
		if closed(hanging) {
			verdict = Hang
		} else if rule != nil {
			verdict = rule(piece)
		}
		switch verdict {
		case Cut:
			return false
		case Hang:
			hang.Do(func() { close(hanging) })
			return wait(one)
		case CutAnswer:
			cutAnswer.Do(func() { close(cutting) })
		}
		return true
	})
	if closed(cutting) {
		answers.Wait() // the server's answer, or its end
	}
	one.close()
	answers.Wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait reads and drops what the client sends until the connection is closed.
func wait(one *pair) bool {
	_, _ = io.Copy(io.Discard, one.client)
	return false
}

// copyPieces forwards what it reads as long as allowed.
func copyPieces(to io.Writer, from io.Reader, allowed func(piece []byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !allowed(buffer[:n]) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
