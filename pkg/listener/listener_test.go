package listener

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// dial connects from an address of this machine.
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

// TestConnectionsOfOneAddress: one pod without a token cannot hold all connections.
func TestConnectionsOfOneAddress(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := Limit(inner, 2*maxConnectionsPerAddress)
	t.Cleanup(func() { _ = limited.Close() })
	accepted := make(chan net.Conn, 4*maxConnectionsPerAddress)
	go func() {
		for {
			connection, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	var served []net.Conn
	for range maxConnectionsPerAddress {
		dial(t, limited.Addr(), "127.0.0.1")
		served = append(served, <-accepted)
	}
	refused := dial(t, limited.Addr(), "127.0.0.1")
	_ = refused.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		t.Errorf("one connection more than %d of one address: %v, want that it is closed", maxConnectionsPerAddress, err)
	}
	dial(t, limited.Addr(), "127.0.0.2")
	other := <-accepted
	if host, _, _ := net.SplitHostPort(other.RemoteAddr().String()); host != "127.0.0.2" {
		t.Errorf("the next that is served is %s, want 127.0.0.2", host)
	}
	_ = served[0].Close()
	_ = served[0].Close() // counts only once
	dial(t, limited.Addr(), "127.0.0.1")
	if host, _, _ := net.SplitHostPort((<-accepted).RemoteAddr().String()); host != "127.0.0.1" {
		t.Errorf("after one was closed %s is served, want 127.0.0.1", host)
	}
	more := dial(t, limited.Addr(), "127.0.0.1")
	_ = more.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := more.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection that is closed twice makes room for two: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestUnauthenticatedConnectionsClose: the connection of a caller without a valid token is closed; others stay open.
func TestUnauthenticatedConnectionsClose(t *testing.T) {
	for status, want := range map[int]bool{http.StatusUnauthorized: true, http.StatusOK: false, http.StatusForbidden: false} {
		server := httptest.NewServer(CloseUnauthorized(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.Close != want {
			t.Errorf("after status %d the connection closes: %t, want %t", status, response.Close, want)
		}
		server.Close()
	}
}
