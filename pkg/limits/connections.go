package limits

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxSilent is the number of connections on which nothing was sent yet. Such a connection takes about 4 KiB.
	maxSilent = 2048
	// silentTime is how long such a connection is kept.
	silentTime = 10 * time.Second
)

// Connections bounds the connections to a server, to which anybody may connect. A new connection is always accepted. It reaches the server with its
// first byte, and counts for its address until Authenticated names an owner. When there are too many, the oldest one of the address that has the most
// makes room. So neither silent connections nor any number of requests without a valid token keep others out, not even others behind the same proxy
// or node.
//
// A connection of a proxy carries the requests of several users. It counts for the first of them. All methods are safe for concurrent use.
type Connections struct {
	// Max is the maximum number of connections on which something was sent.
	Max int
	// MaxPerOwner is the maximum number of connections that count for one owner. Each further one is closed after the response of its first request.
	MaxPerOwner int

	mu sync.Mutex
	// silent and anonymous are the connections without an owner by address, the oldest first.
	silent, anonymous   byAddress
	nSilent, nAnonymous int
	owned               Quota
	nOwned              int
}

type byAddress map[string][]*conn

// Limit returns the listener with these bounds, for the server to serve. It sets the server's ConnContext, and has the server close the connections
// of callers whose token is missing or invalid: they would otherwise keep them for the idle timeout.
func (c *Connections) Limit(server *http.Server, listener net.Listener) net.Listener {
	server.ConnContext = withConnection
	server.Handler = closeUnauthorized(server.Handler)
	c.silent, c.anonymous = byAddress{}, byAddress{}
	return &limitedListener{Listener: listener, connections: c, ready: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{})}
}

// limitedListener accepts connections that have sent something.
type limitedListener struct {
	net.Listener
	connections  *Connections
	begin, close sync.Once
	ready        chan net.Conn
	failed       chan error
	closed       chan struct{}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.accept() })
	select {
	case connection := <-l.ready:
		return connection, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// accept accepts connections until the listener is closed. net/http pauses after an error, and ends unless the error is temporary.
func (l *limitedListener) accept() {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.failed <- err:
				continue
			case <-l.closed:
				return
			}
		}
		c := &conn{Conn: connection, of: l.connections, address: hostOf(connection.RemoteAddr().String())}
		l.connections.addSilent(c)
		go l.await(c)
	}
}

// await passes a connection on once its first byte has come.
func (l *limitedListener) await(c *conn) {
	_ = c.Conn.SetReadDeadline(time.Now().Add(silentTime))
	n, err := c.Conn.Read(c.first[:])
	_ = c.Conn.SetReadDeadline(time.Time{})
	if c.unread = n > 0; !c.unread || err != nil || !l.connections.start(c) {
		_ = c.Close()
		return
	}
	select {
	case l.ready <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

// Close implements net.Listener. It closes the silent connections too.
func (l *limitedListener) Close() error {
	err := l.Listener.Close()
	l.close.Do(func() {
		close(l.closed)
		l.connections.closeSilent()
	})
	return err
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	of      *Connections
	address string
	// first has the first byte, until it is read.
	first  [1]byte
	unread bool

	// The fields below are guarded by of.mu.
	state connState
	owner func() // ends the count for the owner
}

type connState int

const (
	isSilent connState = iota
	isAnonymous
	isOwned
	isClosed
)

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.unread && len(p) > 0 {
		c.unread = false
		return copy(p, c.first[:]), nil
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// addSilent counts a new connection. One connection too many makes another one end.
func (c *Connections) addSilent(added *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent[added.address] = append(c.silent[added.address], added)
	if c.nSilent++; c.nSilent > maxSilent {
		c.evict(c.silent)
	}
}

// start counts a connection on which something was sent. It returns false if there are too many connections with an owner, or if the connection is
// closed.
func (c *Connections) start(started *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if started.state != isSilent || c.nOwned >= c.Max {
		return false
	}
	c.forget(started)
	started.state = isAnonymous
	c.anonymous[started.address] = append(c.anonymous[started.address], started)
	if c.nAnonymous++; c.nAnonymous+c.nOwned > c.Max {
		c.evict(c.anonymous)
	}
	return true
}

// evict closes the oldest connection of the address that has the most. The caller holds the lock.
func (c *Connections) evict(from byAddress) {
	var most []*conn
	for _, connections := range from {
		if len(connections) > len(most) {
			most = connections
		}
	}
	oldest := most[0]
	c.forget(oldest)
	go func() { _ = oldest.Conn.Close() }() // the end of a connection must not wait
}

// forget ends the count of a connection. The caller holds the lock.
func (c *Connections) forget(ended *conn) {
	switch ended.state {
	case isSilent:
		c.silent.remove(ended)
		c.nSilent--
	case isAnonymous:
		c.anonymous.remove(ended)
		c.nAnonymous--
	case isOwned:
		ended.owner()
		c.nOwned--
	case isClosed:
	}
	ended.state = isClosed
}

func (b byAddress) remove(c *conn) {
	rest := slices.DeleteFunc(b[c.address], func(other *conn) bool { return other == c })
	if b[c.address] = rest; len(rest) == 0 {
		delete(b, c.address)
	}
}

func (c *Connections) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, connections := range c.silent {
		for _, silent := range connections {
			_ = silent.Conn.Close()
		}
	}
}

// assign lets a connection count for an owner from now on. It returns false if the owner has too many connections already.
func (c *Connections) assign(to *conn, owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.state != isAnonymous {
		return true
	}
	release, exceeded := c.owned.Take(Bound{Owner: owner, Max: c.MaxPerOwner})
	if exceeded >= 0 {
		return false
	}
	c.forget(to)
	to.state, to.owner = isOwned, release
	c.nOwned++
	return true
}

type connectionKey struct{}

// withConnection is the ConnContext of a server. It lets Authenticated find the connection of a request.
func withConnection(ctx context.Context, connection net.Conn) context.Context {
	for {
		switch c := connection.(type) {
		case *conn:
			return context.WithValue(ctx, connectionKey{}, c)
		case interface{ NetConn() net.Conn }: // TLS
			connection = c.NetConn()
		default:
			return ctx
		}
	}
}

// Authenticated records that a request of this owner came over the connection of w's request. If the owner has too many connections, it has
// the connection closed after the response. It does nothing for connections without limits.
func Authenticated(ctx context.Context, w http.ResponseWriter, owner string) {
	if c, ok := ctx.Value(connectionKey{}).(*conn); ok && !c.of.assign(c, owner) {
		w.Header().Set("Connection", "close") // over HTTP/2, net/http sends GOAWAY
	}
}

// AddressOf returns the address that a request comes from, without the port. That is the IP of a pod, or of a node or proxy in between.
func AddressOf(r *http.Request) string { return hostOf(r.RemoteAddr) }

type addressKey struct{}

// WithAddress returns a context with the address that a request comes from, for AddressIn.
func WithAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

// AddressIn returns the address that WithAddress recorded; "" if there is none.
func AddressIn(ctx context.Context) string {
	address, _ := ctx.Value(addressKey{}).(string)
	return address
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func closeUnauthorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&unauthorizedCloser{w}, r) })
}

// unauthorizedCloser closes the connection after a response with the status 401.
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
