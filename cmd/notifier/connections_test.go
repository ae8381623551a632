package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestSilentConnections: a pod without any token cannot keep the kubelet's probes and the manager from the notifier by opening connections on which it
// sends nothing. Both come from the same address here.
func TestSilentConnections(t *testing.T) {
	for name, secure := range map[string]bool{"probes": false, "deliveries": true} {
		t.Run(name, func(t *testing.T) {
			free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := free.Addr().String()
			_ = free.Close()
			s := newServer(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
			s.ErrorLog = log.New(io.Discard, "", 0)
			scheme := "http"
			if secure {
				s.TLSConfig, scheme = &tls.Config{GetCertificate: certificate(t).Get, MinVersion: tls.VersionTLS12}, "https"
			}
			go func() { _ = listen(s) }()
			t.Cleanup(func() { _ = s.Close() })
			ask := func(timeout time.Duration) error {
				client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
				answer, err := client.Get(scheme + "://" + address + "/healthz")
				if err == nil {
					_ = answer.Body.Close()
				}
				return err
			}
			for range 50 {
				if ask(time.Second) == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err := ask(time.Second); err != nil && !secure {
				t.Fatalf("before: %v", err)
			}
			// One attacker: 1,500 connections that send nothing, opened again when the server closes them.
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var open atomic.Int64
			for range 1500 {
				go func() {
					for ctx.Err() == nil {
						conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
						if err != nil {
							time.Sleep(50 * time.Millisecond)
							continue
						}
						open.Add(1)
						done := context.AfterFunc(ctx, func() { _ = conn.Close() })
						_, _ = conn.Read(make([]byte, 1))
						done()
						_ = conn.Close()
						open.Add(-1)
					}
				}()
			}
			for open.Load() < 1500 {
				time.Sleep(10 * time.Millisecond)
			}
			failed, asked := 0, 0
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); asked++ {
				if err := ask(5 * time.Second); err != nil { // a kubelet's default is 1 s
					failed++
				}
			}
			t.Logf("%s: %d connections of one address; %d of %d requests of others failed within 2 s", name, open.Load(), failed, asked)
			if failed > 0 {
				t.Errorf("%d of %d requests of others were not answered within 5 s", failed, asked)
			}
		})
	}
}
