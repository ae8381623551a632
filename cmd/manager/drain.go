package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// drainDelay is how long a replica that ends accepts requests: until the nodes have stopped sending new connections to it.
	drainDelay = 5 * time.Second
	// drainTimeout is how long the last requests may take after that. Together they are shorter than the pod's terminationGracePeriodSeconds, 30 s.
	drainTimeout = 20 * time.Second
)

// servers are the servers of this process for workers, people and programs. They outlast the manager, which gives its Lease back at once.
type servers struct {
	all []listeningServer
	// cached is closed when the cache has begun.
	cached chan struct{}
	// closing is closed when the process is about to end: requests that wait for something end, and each response ends its connection, since a
	// client would otherwise send the next request over one that is being closed.
	closing chan struct{}
	// requests is the context of all requests.
	requests context.Context //nolint:containedctx // net/http asks for it
	abort    context.CancelFunc
}

type listeningServer struct {
	*http.Server
	listener net.Listener
}

func newServers() *servers {
	// Every replica may write what a request asks for.
	ctx, cancel := context.WithCancel(store.ForAnyReplica(context.Background()))
	return &servers{cached: make(chan struct{}), closing: make(chan struct{}), requests: ctx, abort: cancel}
}

// add adds a server. It serves once serve is called.
func (s *servers) add(server *http.Server, listener net.Listener) {
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.closing:
			w.Header().Set("Connection", "close")
		default:
		}
		next.ServeHTTP(w, r)
	})
	server.BaseContext = func(net.Listener) context.Context { return s.requests }
	s.all = append(s.all, listeningServer{server, listener})
}

// serve serves until drain is called. It returns the first error of a server.
func (s *servers) serve() error {
	ended := make(chan error, len(s.all))
	for _, server := range s.all {
		go func() { ended <- server.Serve(server.listener) }()
	}
	for range s.all {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	return nil
}

// drain ends the servers. If other replicas serve, the requests that are under way are answered first, and so are those that still come while the
// nodes learn that this replica goes. Otherwise nobody waits for anything.
func (s *servers) drain(othersServe bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	close(s.closing)
	if othersServe {
		time.Sleep(drainDelay)
		time.AfterFunc(drainTimeout, cancel)
	} else {
		cancel()
	}
	var group errgroup.Group
	for _, server := range s.all {
		group.Go(func() error { return server.Shutdown(ctx) })
	}
	_ = group.Wait() // what has not ended by then is aborted
	s.abort()
	for _, server := range s.all {
		_ = server.Close()
	}
}
