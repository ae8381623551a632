package main

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
)

// After the end of each fault of a link, requests succeed. While the server throttles, they get the status 429.
func TestConnectionFaults(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(server.Close)
	through, err := proxy.New("127.0.0.1:0", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	get := func() (status int, err error) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://127.0.0.1:" + strconv.Itoa(through.Port))
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return response.StatusCode, err
	}
	faults := connectionFaults([]*link{{name: "registry", plainHTTP: true, proxy: through}}, rand.New(rand.NewPCG(1, 1)))
	if len(faults) != 5 {
		t.Fatalf("%d faults, want 5", len(faults))
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if err := f.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f.name, "throttles") {
				if status, err := get(); status != http.StatusTooManyRequests || err != nil {
					t.Errorf("during the fault: status %d, %v", status, err)
				}
			}
			if f.end != nil {
				if err := f.end(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if status, err := get(); status != http.StatusOK || err != nil {
				t.Errorf("after the fault: status %d, %v", status, err)
			}
		})
	}
}

// The ledger finds the faults that may lose an answer of Slack by their names.
func TestFaultsThatLoseAnswers(t *testing.T) {
	links := linksOf("registry:5000", true)
	known := map[string]fault{}
	for _, f := range connectionFaults(links, rand.New(rand.NewPCG(1, 1))) {
		if _, twice := known[f.name]; twice {
			t.Errorf("two faults are called %q", f.name)
		}
		known[f.name] = f
	}
	lose := losesAnswers(links)
	if len(lose) == 0 {
		t.Error("no fault loses an answer")
	}
	for name := range lose {
		if f, exists := known[name]; !exists || !f.delivery {
			t.Errorf("%q is no fault of a delivery", name)
		}
	}
}
