package main

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/netutil"
)

// connectionsOfOne is how many connections one address may have. A worker has one, and an address is a pod's or, where a
// network hides pods, a node's.
const connectionsOfOne = 16

// limited is a listener with at most so many connections, and connectionsOfOne of the same address: nobody needs a token to
// connect, and a single pod shall not be able to keep out all others.
func limited(listener net.Listener, all int) net.Listener {
	return netutil.LimitListener(&perAddress{Listener: listener, open: map[string]int{}}, all)
}

// perAddress closes what one address has too much.
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

// dismissing closes the connections of those whose token is missing or wrong, who would else keep them for the idle time.
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
