package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// Database is where the measured store is, with its bounds.
type Database struct {
	text string
	// server is the name of the server that is started; empty for a file.
	server   string
	settings map[string]string
	connect  func(context.Context, store.Server, func() time.Time) (*store.Store, error)
	// answer bounds the p95 of an answer, report the p50 of writing a report with the counts that lists are made of, distantReport the same over a slow
	// link. overview and vulnerabilities bound the p95 of lists.
	answer, report, distantReport, overview, vulnerabilities time.Duration
}

// Databases that are measured. The servers commit to the disk as they do by default; PostgreSQL and MariaDB have half a gibibyte of memory for
// pages.
var (
	SQLite = Database{
		text: "The store is SQLite on this machine's disk, one writer.", answer: 50 * time.Millisecond, report: 8 * time.Millisecond,
		overview: 100 * time.Millisecond, vulnerabilities: 150 * time.Millisecond,
	}
	PostgreSQL = Database{
		text: "The store is on a PostgreSQL server on this machine, one writer.", server: "PostgreSQL", connect: store.OpenPostgreSQL,
		settings: map[string]string{"autovacuum": "on", "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB", "max_wal_size": "2GB"},
		answer:   50 * time.Millisecond, report: 12 * time.Millisecond, distantReport: 20 * time.Millisecond,
		overview: 100 * time.Millisecond, vulnerabilities: 150 * time.Millisecond,
	}
	MariaDB = Database{
		text: "The store is on a MariaDB server on this machine, one writer.", server: "MariaDB", connect: store.OpenMySQL,
		settings: map[string]string{
			"innodb-flush-log-at-trx-commit": "1", "innodb-flush-method": "fsync", "innodb-doublewrite": "1", "innodb-buffer-pool-size": "512M",
		},
		answer: 100 * time.Millisecond, report: 20 * time.Millisecond, distantReport: 40 * time.Millisecond,
		overview: 200 * time.Millisecond, vulnerabilities: 300 * time.Millisecond,
	}
)

// opened is a store that is measured.
type opened struct {
	in    Database
	store *store.Store
	// file is the path of a file, dsn the data source name of a database on a server.
	file, dsn string
	closers   []func() error
}

func (o *opened) close() error {
	var errs []error
	for i := range o.closers {
		errs = append(errs, o.closers[len(o.closers)-1-i]())
	}
	return errors.Join(errs...)
}

func (in Database) open(ctx context.Context) (*opened, error) {
	o := &opened{in: in}
	var err error
	if in.server == "" {
		err = o.openFile(ctx)
	} else {
		err = o.openServer(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.closers = append(o.closers, o.store.Close)
	return o, nil
}

func (o *opened) openFile(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-store-")
	if err != nil {
		return err
	}
	o.closers = append(o.closers, func() error { return os.RemoveAll(dir) })
	o.file = filepath.Join(dir, "store.db")
	o.store, err = store.OpenSQLite(ctx, o.file, time.Now)
	return err
}

func (o *opened) openServer(ctx context.Context) error {
	started, err := server.New(o.in.server, server.Options{Settings: o.in.settings})
	if err != nil {
		return err
	}
	o.closers = append(o.closers, started.Close)
	if o.dsn, err = started.Create("bench"); err != nil {
		return err
	}
	o.store, err = o.connect(ctx, o.dsn)
	return err
}

func (o *opened) connect(ctx context.Context, dsn string) (*store.Store, error) {
	return o.in.connect(ctx, store.Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 10}, time.Now)
}

// size returns the bytes of the database as the store's metric has them. CheckHealth measures them.
func (o *opened) size() (bytes int64, err error) {
	if err := o.store.CheckHealth(context.Background()); err != nil {
		return 0, err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(o.store); err != nil {
		return 0, err
	}
	families, err := registry.Gather()
	for _, family := range families {
		if family.GetName() != "scanner_operator_store_size_bytes" {
			continue
		}
		for _, metric := range family.GetMetric() {
			bytes += int64(metric.GetGauge().GetValue())
		}
	}
	if bytes == 0 && err == nil {
		err = errors.New("the store has no metric of its size")
	}
	return bytes, err
}

const (
	// roundTrip is the time that a link adds to each answer of a server.
	roundTrip = time.Millisecond
	// distantReports is the number of reports that are written over the link.
	distantReports = 500
)

// writeFromAfar measures the writing of reports over a link to the server; nil for a file.
func (o *opened) writeFromAfar(ctx context.Context) (took []time.Duration, err error) {
	if o.in.server == "" {
		return nil, nil
	}
	address := o.address()
	link, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	distant, err := o.connect(ctx, strings.Replace(o.dsn, address, link.Addr().String(), 1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, distant.Close()) }()
	for i := images; i < images+distantReports; i++ {
		if err := saveCatalog(ctx, distant, i); err != nil {
			return nil, err
		}
	}
	return writeFrom(ctx, distant, images, distantReports, 0)
}

// address returns the host and port in the DSN.
func (o *opened) address() string {
	begin := strings.Index(o.dsn, "127.0.0.1:")
	end := begin + len("127.0.0.1:")
	for end < len(o.dsn) && o.dsn[end] >= '0' && o.dsn[end] <= '9' {
		end++
	}
	return o.dsn[begin:end]
}

// listen forwards connections to an address. Bytes arrive half a round trip later, in both directions.
func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
				_ = client.Close()
				continue
			}
			go carry(client, there)
			go carry(there, client)
		}
	}()
	return listener, nil
}

// carry forwards what arrives, later.
func carry(from, to net.Conn) {
	defer to.Close()
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, 1<<10)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{time.Now().Add(roundTrip / 2), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		sleepUntil(p.due)
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}

// sleepUntil sleeps in the kernel, since time.Sleep may wake up a millisecond late.
func sleepUntil(due time.Time) {
	left := time.Until(due)
	if left <= 0 {
		return
	}
	wait := syscall.NsecToTimespec(left.Nanoseconds())
	_ = syscall.Nanosleep(&wait, nil) // an interrupted one is shorter
}
