// Package listener keeps the servers of the manager reachable for all, although nobody needs a token to connect.
package listener

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/netutil"
)

// maxConnectionsPerAddress is the maximum number of connections from one address. A worker has one connection. An address is that of a pod or,
// where a network hides pods, that of a node.
const maxConnectionsPerAddress = 16

// Limit returns a listener with a maximum number of connections, and at most maxConnectionsPerAddress of them from the same address. Nobody needs
// a token to connect, and a single pod must not be able to keep all others out. Use Users for a server that people reach through a proxy.
func Limit(listener net.Listener, all int) net.Listener {
	return netutil.LimitListener(&perAddressListener{Listener: listener, open: map[string]int{}}, all)
}

// perAddressListener closes new connections of an address that has maxConnectionsPerAddress already.
type perAddressListener struct {
	net.Listener
	mu   sync.Mutex
	open map[string]int // by address
}

// Accept implements net.Listener.
func (l *perAddressListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(connection)
		if l.acquire(address) {
			return &countedConn{Conn: connection, release: sync.OnceFunc(func() { l.release(address) })}, nil
		}
		_ = connection.Close()
	}
}

func (l *perAddressListener) acquire(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address] >= maxConnectionsPerAddress {
		return false
	}
	l.open[address]++
	return true
}

func (l *perAddressListener) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseUnauthorized closes the connections of callers whose token is missing or invalid. They would otherwise keep them for the idle timeout.
func CloseUnauthorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&unauthorizedCloser{w}, r) })
}

type unauthorizedCloser struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (d *unauthorizedCloser) WriteHeader(status int) {
	if status == http.StatusUnauthorized {
		d.Header().Set("Connection", "close")
	}
	d.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (d *unauthorizedCloser) Unwrap() http.ResponseWriter { return d.ResponseWriter }
