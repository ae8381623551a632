package listener

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// userServer is a server whose callers name their user in the header User instead of sending a token.
func userServer(t *testing.T, users *Users, start func(*httptest.Server)) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get("User"); user != "" {
			Authenticated(r.Context(), w, user)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.Listener, server.Config.ConnContext = users.Limit(server.Listener), users.ConnContext
	start(server)
	t.Cleanup(server.Close)
	return server
}

// send sends a request of a user over an open connection, and returns whether the server keeps the connection.
func send(t *testing.T, connection net.Conn, user string) (kept bool) {
	t.Helper()
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\nUser: "+user+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("request of %s: %v", user, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return !response.Close
}

// isClosed returns whether the server has closed a connection on which nothing was sent.
func isClosed(t *testing.T, connection net.Conn) bool {
	t.Helper()
	_ = connection.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	_, err := connection.Read(make([]byte, 1))
	if err == nil {
		t.Fatal("the server sent something unasked")
	}
	return !isTimeout(err)
}

// TestConnectionsOfUsersBehindAProxy: any number of users share one address. Only connections without a user count for the address.
func TestConnectionsOfUsersBehindAProxy(t *testing.T) {
	users := &Users{Max: 64, MaxPerAddress: 2, MaxPerUser: 2}
	address := userServer(t, users, (*httptest.Server).Start).Listener.Addr()
	for i := range 20 {
		if !send(t, dial(t, address, "127.0.0.1"), string(rune('a'+i))) {
			t.Fatalf("the server closed the connection of user %d of one address", i)
		}
	}
	anonymous := []net.Conn{dial(t, address, "127.0.0.1"), dial(t, address, "127.0.0.1"), dial(t, address, "127.0.0.1")}
	if !isClosed(t, anonymous[2]) || isClosed(t, anonymous[1]) {
		t.Error("want the third connection without a user closed, and the second kept")
	}
	if isClosed(t, dial(t, address, "127.0.0.2")) {
		t.Error("another address is kept out as well")
	}
	if !send(t, anonymous[0], "z") || isClosed(t, dial(t, address, "127.0.0.1")) {
		t.Error("a connection that has a user now still counts for its address")
	}
}

// TestConnectionsOfOneUser: a user with too many connections gets a response and loses the further ones. Another user is not affected.
func TestConnectionsOfOneUser(t *testing.T) {
	users := &Users{Max: 64, MaxPerAddress: 8, MaxPerUser: 2}
	address := userServer(t, users, (*httptest.Server).Start).Listener.Addr()
	first := dial(t, address, "127.0.0.1")
	if !send(t, first, "jane") || !send(t, dial(t, address, "127.0.0.1"), "jane") || !send(t, first, "jane") {
		t.Fatal("the server closed a connection within the bound")
	}
	if send(t, dial(t, address, "127.0.0.1"), "jane") {
		t.Error("the third connection of a user with at most 2 is kept")
	}
	if !send(t, dial(t, address, "127.0.0.1"), "john") {
		t.Error("the connection of another user is closed")
	}
	_ = first.Close()
	for deadline := time.Now().Add(10 * time.Second); !send(t, dial(t, address, "127.0.0.1"), "jane"); {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection still counts for its user")
		}
	}
	_ = first.Close() // counts only once
}

// TestConnectionsOverTLS: connections are found under TLS and HTTP/2 as well.
func TestConnectionsOverTLS(t *testing.T) {
	users := &Users{Max: 64, MaxPerAddress: 8, MaxPerUser: 1}
	server := userServer(t, users, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
	request := func() string {
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
		protocol, _ := io.ReadAll(response.Body)
		return string(protocol)
	}
	if protocol := request(); protocol != "HTTP/2.0" {
		t.Errorf("the protocol is %s, want HTTP/2.0", protocol)
	}
	users.mu.Lock()
	defer users.mu.Unlock()
	if n := users.open[connectionOwner{user: "jane"}]; n != 1 || len(users.open) != 1 {
		t.Errorf("connections %v, want one of jane", users.open)
	}
}
