// Package clair measures what it takes to scan with Clair: what the manager asks of it for many images on few bases, what
// it costs to read all reports again after Clair's vulnerability data has changed, and how much longer an image takes
// by way of the backend than by Clair's own command.
//
// Clair, PostgreSQL, API server, etcd and manager are real; the registry is in this process; nodes and pods are only
// written down. It does not know the page that the figures are written to.
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

// Options say where things are.
type Options struct {
	// Root is the project's directory, Bin the programs and images that make has built, Assets etcd and kube-apiserver.
	Root, Bin, Assets string
	// Progress is told what goes on.
	Progress func(format string, args ...any)
}

// patience bounds all waiting. Each wait is for a minute at most where nothing else runs.
const patience = 15 * time.Minute

// figures are all that is measured.
type figures struct {
	indexed indexed
	// bounded is at the rate of the default configuration, unbounded at the highest that there is.
	bounded, unbounded reread
	overheads          []overhead
	// clairPeak is Clair's resident memory at its peak, in bytes.
	clairPeak int64
}

// Measure runs everything against one Clair.
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

// measureCluster is what is measured of the manager.
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

// server is an HTTP server of this process on a port of its own.
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

// freeAddress is one that nobody listens on now.
func freeAddress() (address, port string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	address = listener.Addr().String()
	_, port, err = net.SplitHostPort(address)
	return address, port, errors.Join(err, listener.Close())
}
