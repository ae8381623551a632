package listener

import (
	"context"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/netutil"
)

// Users bounds the connections of a server whose callers send a token with each request. A connection counts for its address until the first
// request with a valid token, and then for that user. Everybody behind a proxy has the same address, so the bound of an address is only for
// connections without a user.
//
// A connection of a proxy carries the requests of several users. It counts for the first of them. All methods are safe for concurrent use.
type Users struct {
	// Max is the maximum number of connections. Further ones wait to be accepted.
	Max int
	// MaxPerAddress is the maximum number of connections of one address that have no user yet. Further ones are closed.
	MaxPerAddress int
	// MaxPerUser is the maximum number of connections that count for one user. Each further one is closed after the response of its first request.
	MaxPerUser int

	mu   sync.Mutex
	open map[connectionOwner]int
}

// connectionOwner is the address or the user that a connection counts for.
type connectionOwner struct {
	address, user string
}

// Limit returns a listener with these bounds. The server's ConnContext must be u.ConnContext.
func (u *Users) Limit(listener net.Listener) net.Listener {
	return &userListener{Listener: netutil.LimitListener(listener, u.Max), users: u}
}

type userListener struct {
	net.Listener
	users *Users
}

// Accept implements net.Listener.
func (l *userListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		owner := connectionOwner{address: addressOf(connection)}
		if l.users.acquire(owner, l.users.MaxPerAddress) {
			return &ownedConn{Conn: connection, users: l.users, owner: owner}, nil
		}
		_ = connection.Close()
	}
}

// acquire counts one more connection of an owner, unless the owner has max already.
func (u *Users) acquire(owner connectionOwner, maximum int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = map[connectionOwner]int{}
	}
	if u.open[owner] >= maximum {
		return false
	}
	u.open[owner]++
	return true
}

func (u *Users) release(owner connectionOwner) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[owner]--; u.open[owner] == 0 {
		delete(u.open, owner)
	}
}

// ownedConn is a connection that counts for its owner until it is closed.
type ownedConn struct {
	net.Conn
	users *Users

	mu     sync.Mutex
	owner  connectionOwner
	closed bool
}

// Close implements net.Conn.
func (c *ownedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.users.release(c.owner)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// assign lets the connection count for a user from now on. It returns false if the user has too many connections already.
func (c *ownedConn) assign(user string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.owner.user != "" {
		return true
	}
	owner := connectionOwner{user: user}
	if !c.users.acquire(owner, c.users.MaxPerUser) {
		return false
	}
	c.users.release(c.owner)
	c.owner = owner
	return true
}

type connectionKey struct{}

// ConnContext is for http.Server. It lets Authenticated find the connection of a request.
func (u *Users) ConnContext(ctx context.Context, connection net.Conn) context.Context {
	for {
		switch c := connection.(type) {
		case *ownedConn:
			return context.WithValue(ctx, connectionKey{}, c)
		case interface{ NetConn() net.Conn }: // TLS
			connection = c.NetConn()
		default:
			return ctx
		}
	}
}

// Authenticated records that a request of this user came over the connection of w's request. If the user has too many connections, it has
// the connection closed after the response. It does nothing for connections that are not of a Users listener.
func Authenticated(ctx context.Context, w http.ResponseWriter, user string) {
	if c, ok := ctx.Value(connectionKey{}).(*ownedConn); ok && !c.assign(user) {
		w.Header().Set("Connection", "close") // over HTTP/2, net/http sends GOAWAY
	}
}

func addressOf(connection net.Conn) string {
	address := connection.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
