package limits

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// limitedServer is a server whose callers name their user in the header User instead of sending a token. The user "nobody" is refused.
func limitedServer(t *testing.T, bounds *Connections, start func(*httptest.Server)) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch user := r.Header.Get("User"); user {
		case "":
		case "nobody":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			Authenticated(r.Context(), w, user)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.Listener = bounds.Limit(server.Config, server.Listener)
	start(server)
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, to net.Addr, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	connection, err := dialer.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// write sends a part of a request over a connection.
func write(t *testing.T, connection net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(connection, text); err != nil {
		t.Fatal(err)
	}
}

// request sends a request of a user over an open connection, and returns whether the server keeps the connection.
func request(t *testing.T, connection net.Conn, user string) (kept bool) {
	t.Helper()
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	write(t, connection, "GET / HTTP/1.1\r\nHost: x\r\nUser: "+user+"\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("request of %s: %v", user, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return !response.Close
}

// requireClosed waits until the server has closed a connection.
func requireClosed(t *testing.T, connection net.Conn) {
	t.Helper()
	_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := connection.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the connection is not closed: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// awaitCount waits until a number of connections are in a state.
func awaitCount(t *testing.T, c *Connections, silent, anonymous int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		s, a := c.nSilent, c.nAnonymous
		c.mu.Unlock()
		if s == silent && a == anonymous {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are silent and %d have no owner, want %d and %d", s, a, silent, anonymous)
		}
	}
}

// TestSilentConnections: connections on which nothing is sent do not take the places of those on which something is sent. If there are too many, the
// oldest ones end.
func TestSilentConnections(t *testing.T) {
	bounds := &Connections{Max: 2, MaxPerOwner: 2}
	server := limitedServer(t, bounds, (*httptest.Server).Start)
	address := server.Listener.Addr()
	other := dial(t, address, "127.0.0.2")
	awaitCount(t, bounds, 1, 0)
	first := dial(t, address, "127.0.0.1")
	awaitCount(t, bounds, 2, 0)
	for range maxSilent - 1 {
		dial(t, address, "127.0.0.1")
	}
	requireClosed(t, first)
	if !request(t, dial(t, address, "127.0.0.1"), "jane") || !request(t, other, "john") {
		t.Error("the connection of a user is closed")
	}
	server.Close() // ends the silent ones too
	awaitCount(t, bounds, 0, 0)
}

// TestUnfinishedRequests: when there are too many connections without a user, the oldest one of the address with the most ends. So a newcomer is
// always served, also one with the same address.
func TestUnfinishedRequests(t *testing.T) {
	bounds := &Connections{Max: 8, MaxPerOwner: 8}
	address := limitedServer(t, bounds, (*httptest.Server).Start).Listener.Addr()
	other := dial(t, address, "127.0.0.2")
	write(t, other, "G")
	awaitCount(t, bounds, 0, 1)
	var unfinished []net.Conn
	for i := range 20 {
		connection := dial(t, address, "127.0.0.1")
		write(t, connection, "GET / HT")
		unfinished = append(unfinished, connection)
		awaitCount(t, bounds, 0, min(i+2, 8))
	}
	requireClosed(t, unfinished[0])
	requireClosed(t, unfinished[12])
	for i := range 8 {
		if !request(t, dial(t, address, "127.0.0.1"), string(rune('a'+i))) {
			t.Errorf("the server closed the connection of user %d", i)
		}
	}
	// Only connections of users are left: they are not closed for others.
	requireClosed(t, other)
	connection := dial(t, address, "127.0.0.3")
	write(t, connection, "G")
	requireClosed(t, connection)
}

// TestConnectionsOfOneUser: a user with too many connections gets a response and loses the further ones. Another user is not affected.
func TestConnectionsOfOneUser(t *testing.T) {
	bounds := &Connections{Max: 64, MaxPerOwner: 2}
	address := limitedServer(t, bounds, (*httptest.Server).Start).Listener.Addr()
	first := dial(t, address, "127.0.0.1")
	if !request(t, first, "jane") || !request(t, dial(t, address, "127.0.0.1"), "jane") || !request(t, first, "jane") {
		t.Fatal("the server closed a connection within the bound")
	}
	if request(t, dial(t, address, "127.0.0.1"), "jane") {
		t.Error("the third connection of a user with at most 2 is kept")
	}
	if !request(t, dial(t, address, "127.0.0.1"), "john") {
		t.Error("the connection of another user is closed")
	}
	_ = first.Close()
	for deadline := time.Now().Add(10 * time.Second); !request(t, dial(t, address, "127.0.0.1"), "jane"); {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection still counts for its user")
		}
	}
}

// TestUnauthorizedConnectionsClose: the connection of a caller without a valid token ends with the response.
func TestUnauthorizedConnectionsClose(t *testing.T) {
	bounds := &Connections{Max: 64, MaxPerOwner: 2}
	address := limitedServer(t, bounds, (*httptest.Server).Start).Listener.Addr()
	if request(t, dial(t, address, "127.0.0.1"), "nobody") {
		t.Error("the connection is kept")
	}
	awaitCount(t, bounds, 0, 0)
}

// TestConnectionsOverTLS: connections are found under TLS and HTTP/2 as well.
func TestConnectionsOverTLS(t *testing.T) {
	bounds := &Connections{Max: 64, MaxPerOwner: 1}
	server := limitedServer(t, bounds, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User", "jane")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if protocol, _ := io.ReadAll(response.Body); string(protocol) != "HTTP/2.0" {
		t.Errorf("the protocol is %s, want HTTP/2.0", protocol)
	}
	if n := bounds.owned.Used("jane"); n != 1 {
		t.Errorf("jane has %d connections, want 1", n)
	}
	// A handshake that never ends counts for its address.
	unfinished := dial(t, server.Listener.Addr(), "127.0.0.1")
	go func() { _ = tls.Client(unfinished, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	awaitCount(t, bounds, 0, 1)
}

// TestAddress: the requests of an address count together, regardless of their port.
func TestAddress(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:4711": "192.0.2.1", "[2001:db8::1]:4711": "2001:db8::1", "": ""} {
		if got := AddressOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%q is of address %q, want %q", remote, got, want)
		}
	}
}
