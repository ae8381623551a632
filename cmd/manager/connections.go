package main

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/netutil"
)

// connectionsOfOne is the maximum number of connections from one address. A worker has one connection. An address is that of a pod or,
// where a network hides pods, that of a node.
const connectionsOfOne = 16

// limited returns a listener with a maximum number of connections, and at most connectionsOfOne of them from the same address. Nobody needs
// a token to connect, and a single pod must not be able to keep all others out.
func limited(listener net.Listener, all int) net.Listener {
	return netutil.LimitListener(&perAddress{Listener: listener, open: map[string]int{}}, all)
}

// perAddress closes new connections of an address that has connectionsOfOne already.
type perAddress struct {
	net.Listener
	mu   sync.Mutex
	open map[string]int // by address
}

// Accept implements net.Listener.
func (l *perAddress) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := connection.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
		if l.enter(address) {
			return &counted{Conn: connection, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
		}
		_ = connection.Close()
	}
}

func (l *perAddress) enter(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address] >= connectionsOfOne {
		return false
	}
	l.open[address]++
	return true
}

func (l *perAddress) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// dismissing closes the connections of callers whose token is missing or invalid. They would otherwise keep them for the idle timeout.
func dismissing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&dismisser{w}, r) })
}

type dismisser struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (d *dismisser) WriteHeader(status int) {
	if status == http.StatusUnauthorized {
		d.Header().Set("Connection", "close")
	}
	d.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (d *dismisser) Unwrap() http.ResponseWriter { return d.ResponseWriter }
