package identity

import (
	"net/http"
	"testing"
)

// TestEndpointsOnTheNodeUseNoProxy: a proxy could neither reach the endpoints on the pod's node nor may it see their tokens.
func TestEndpointsOnTheNodeUseNoProxy(t *testing.T) {
	i, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if transport, isPlain := i.local.Transport.(*http.Transport); !isPlain || transport.Proxy != nil {
		t.Errorf("the transport is %T with a proxy, want one without", i.local.Transport)
	}
}
