// Package clair measures scanning with Clair: the requests that the manager sends for many images on few bases, the cost of reading all
// reports again after Clair's vulnerability data has changed, and the overhead of the backend for one image compared with Clair's own
// command.
//
// Clair, PostgreSQL, API server, etcd and manager are real. The registry runs in this process. Nodes and pods are only API objects. The
// package does not know the page that the figures are written to.
package clair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Options holds the directories that the measurement needs.
type Options struct {
	// Root is the project's directory, Bin that of the programs and images that make has built, Assets that of etcd and kube-apiserver.
	Root, Bin, Assets string
	// Progress prints a line about the current step.
	Progress func(format string, args ...any)
}

// waitTimeout bounds each wait. On an otherwise idle machine, each wait takes at most a minute.
const waitTimeout = 15 * time.Minute

// figures are all measured values.
type figures struct {
	indexed indexed
	// bounded is measured at the rate of the default configuration, unbounded at the highest allowed rate.
	bounded, unbounded reread
	overheads          []overhead
	// clairPeak is the peak resident memory of Clair, in bytes.
	clairPeak int64
}

// Measure runs all measurements against one Clair and returns the section of the page.
func Measure(ctx context.Context, options Options) (section page.Section, err error) {
	dir, err := os.MkdirTemp("", "bench-clair-")
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	i, err := install(ctx, options, dir)
	defer func() { err = errors.Join(err, i.stop()) }()
	if err != nil {
		return section, err
	}
	var f figures
	if f.overheads, err = i.measureOverheads(ctx); err != nil {
		return section, fmt.Errorf("overhead: %w", err)
	}
	if err := i.measureCluster(ctx, &f); err != nil {
		return section, err
	}
	if _, f.clairPeak, err = i.clair.Memory(); err != nil {
		return section, err
	}
	return f.section(), nil
}

// measureCluster measures the manager.
func (i *installation) measureCluster(ctx context.Context, f *figures) (err error) {
	c, err := startCluster(ctx, i)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err != nil {
		return err
	}
	if f.indexed, err = c.measureIndex(ctx); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if f.bounded, err = c.measureReread(ctx, defaultRate, 1); err != nil {
		return fmt.Errorf("read again: %w", err)
	}
	if f.unbounded, err = c.measureReread(ctx, highestRate, 2); err != nil {
		return fmt.Errorf("read again: %w", err)
	}
	return nil
}

// server is an HTTP server in this process, on a port of its own.
type server struct {
	*http.Server
	address string
}

func serve(handler http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{Server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, address: listener.Addr().String()}
	go func() { _ = s.Serve(listener) }() // ends with Close
	return s, nil
}
