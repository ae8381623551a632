package clair

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/test/bench/process"
)

// Rates at which reports are read, in reports per second: that of the default configuration, and the highest that it takes.
const (
	defaultRate = 20
	highestRate = 1000
)

func expectedVulnerabilities() []string { return expected[api.Vulnerabilities] }

// memory of the manager is resident, in bytes.
type memory struct{ after, peak int64 }

// indexed is what it took to scan all images for the first time.
type indexed struct {
	// took is the time from the first Scanner's creation until all are scanned.
	took time.Duration
	// requests to Clair by kind.
	requests map[string]int
	// shared and own are fetches of the layers that several images have, and of the others.
	shared, own fetched
	findings    int
	before      int64 // memory before any Scanner
	memory      memory
}

// fetched says how many blobs were fetched, how often in all, and how often one was at most.
type fetched struct{ blobs, times, most int }

// measureIndex has the manager scan everything. The manager goes on running.
func (c *cluster) measureIndex(ctx context.Context) (m indexed, err error) {
	if err := c.startManager(ctx, defaultRate); err != nil {
		return m, err
	}
	if m.before, _, err = c.manager.Memory(); err != nil {
		return m, err
	}
	c.options.Progress("%d images in %d namespaces are scanned", imageCount, namespaces)
	c.requests.reset()
	c.fetches.reset()
	began := time.Now()
	if err := c.createScanners(ctx); err != nil {
		return m, err
	}
	if err := process.Eventually(ctx, patience, process.Often, c.covered); err != nil {
		return m, err
	}
	m.took = time.Since(began)
	m.requests, _ = c.requests.taken()
	m.shared, m.own = c.fetches.taken(c.content.shared), c.fetches.taken(c.content.own)
	if m.memory.after, m.memory.peak, err = c.manager.Memory(); err != nil {
		return m, err
	}
	have, err := c.findings(ctx)
	for number := range have {
		m.findings = number
	}
	if err == nil && len(have) != 1 {
		err = fmt.Errorf("numbers of findings by image: %v, expected the same for all", have)
	}
	return m, err
}

// reread is what it took to read all reports again.
type reread struct {
	rate int
	// reading is the time from the first request for a report to the last answer, shown until every ImageScan shows it.
	reading, shown time.Duration
	requests       map[string]int
	// layers is how many layers were fetched.
	layers int
	memory memory
}

// measureReread changes the advisories under a new manager with that rate, and waits until every image says so.
func (c *cluster) measureReread(ctx context.Context, rate, version int) (m reread, err error) {
	m.rate = rate
	if err := c.manager.Stop(); err != nil {
		return m, err
	}
	if err := c.startManager(ctx, rate); err != nil {
		return m, err
	}
	before, err := c.findings(ctx)
	if err != nil {
		return m, err
	}
	c.options.Progress("%d reports are read again, at most %d a second", reports, rate)
	// What follows the manager's start is over once it has looked at Clair's data a second time.
	c.requests.reset()
	err = process.Eventually(ctx, patience, process.Often, func(context.Context) error {
		if requests, _ := c.requests.taken(); requests[readState] < 2 {
			return errors.Join(c.manager.Alive(), errors.New("the manager has not asked Clair twice"))
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	c.requests.reset()
	c.fetches.reset()
	if err := errors.Join(c.manager.ForgetPeak(), c.change(ctx, version)); err != nil {
		return m, err
	}
	if err := c.awaitChange(ctx, before, &m); err != nil {
		return m, err
	}
	m.requests, m.reading = c.requests.taken()
	m.layers = c.fetches.taken(c.content.shared).times + c.fetches.taken(c.content.own).times
	m.memory.after, m.memory.peak, err = c.manager.Memory()
	return m, err
}

// awaitChange waits until every ImageScan has the findings that were added.
func (c *cluster) awaitChange(ctx context.Context, before map[int]int, m *reread) error {
	want := 0
	for number := range before {
		want = number + addedFindings
	}
	err := process.Eventually(ctx, patience, process.Often, func(ctx context.Context) error {
		// The API server is asked for all of them only when they may be done.
		if requests, _ := c.requests.taken(); requests[readReport] < reports {
			return errors.Join(c.manager.Alive(), fmt.Errorf("%d reports were read", requests[readReport]))
		}
		have, err := c.findings(ctx)
		if err == nil && have[want] != reports {
			err = fmt.Errorf("numbers of findings by image: %v, expected %d with %d", have, reports, want)
		}
		return err
	})
	m.shown = c.requests.sinceFirstReport()
	return err
}
