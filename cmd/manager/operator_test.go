package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestListingFromPrivateMirror: the listing of databases may be on a mirror with a certificate of a private authority.
func TestListingFromPrivateMirror(t *testing.T) {
	mirror := httptest.NewTLSServer(http.NotFoundHandler())
	mirror.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(mirror.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mirror.Certificate().Raw})
	for authorities, trusted := range map[string]bool{"": false, string(authority): true} {
		client, err := listingClient(authorities)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(mirror.URL)
		if err == nil {
			err = response.Body.Close()
		}
		if (err == nil) != trusted {
			t.Errorf("with the mirror's authority known to be %v: %v", trusted, err)
		}
	}
}
