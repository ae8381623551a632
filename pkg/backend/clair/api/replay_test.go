package api_test

import (
	"bufio"
	"bytes"
	"embed"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

//go:embed testdata
var testdata embed.FS

// recorded answers every request with a recorded answer of Clair.
func recorded(t *testing.T, name string) http.HandlerFunc {
	t.Helper()
	content, err := testdata.ReadFile("testdata/" + name + ".http")
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := bytes.Cut(content, []byte("\n\n"))
	line, rest, _ := strings.Cut(string(head), "\n")
	status, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(rest + "\n\n"))).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	header.Del("Transfer-Encoding") // the server sets its own
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		w.Write(body)
		if status == http.StatusTooManyRequests {
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// answering answers every request with a status and a text.
func answering(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(text))
	}
}

// newTestClient returns a client of a server, with short deadlines and small bounds.
func newTestClient(t *testing.T, handler http.Handler, change ...func(*api.Options)) *api.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return clientOf(t, server.URL, change...)
}

func clientOf(t *testing.T, address string, change ...func(*api.Options)) *api.Client {
	t.Helper()
	options := api.Options{URL: address, Timeout: 20 * time.Second, IndexTimeout: 20 * time.Second, MaxAnswerBytes: 1 << 20}
	for _, c := range change {
		c(&options)
	}
	client, err := api.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
