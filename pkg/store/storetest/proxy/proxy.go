// Package proxy is a TCP proxy on a loopback address for tests, between a store and its database server. A test makes it cut connections,
// deliver nothing any more, or swallow answers.
package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards connections to a server. Its methods may be called concurrently.
type Proxy struct {
	// Port is its port on 127.0.0.1.
	Port int

	listener net.Listener
	target   string
	mu       sync.Mutex
	pairs    map[*pair]bool
	refuse   bool
	rule     Rule
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

// Start starts a proxy to a port of 127.0.0.1, and stops it at the end of the test.
func Start(t testing.TB, port int) *Proxy {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	p := &Proxy{Port: listener.Addr().(*net.TCPAddr).Port, listener: listener, target: server.String(), pairs: make(map[*pair]bool)}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.CutAll()
		p.done.Wait()
	})
	return p
}

// SetTarget makes the proxy forward new connections to another port.
func (p *Proxy) SetTarget(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	p.target = server.String()
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
		p.mu.Lock()
		target, refuse := p.target, p.refuse
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil || refuse {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		one := &pair{client, server}
		p.mu.Lock()
		p.pairs[one] = true
		p.mu.Unlock()
		p.done.Go(func() { p.forward(one) })
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
		copyPieces(one.client, one.server, func([]byte) bool { return !closed(cutting) && !closed(hanging) || closed(hanging) && wait(one) })
	})
	copyPieces(one.server, one.client, func(piece []byte) bool {
		p.mu.Lock()
		rule := p.rule
		p.mu.Unlock()
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
