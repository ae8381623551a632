package clair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Rates of reading reports, in reports per second: that of the default configuration, and the highest allowed one.
const (
	defaultRate = 20
	highestRate = 1000
)

func expectedVulnerabilities() []string { return expected[api.Vulnerabilities] }

// memory is the resident memory of the manager, in bytes.
type memory struct{ after, peak int64 }

// indexed holds the measurements of scanning all images for the first time.
type indexed struct {
	// took is the time from the creation of the first Scanner until all images are scanned.
	took time.Duration
	// requests to Clair, by kind.
	requests map[string]int
	// shared counts the fetches of layers that several images have, own those of the other layers.
	shared, own fetched
	findings    int
	before      int64 // resident memory before any Scanner
	memory      memory
}

// fetched holds the number of fetched blobs, the total number of fetches, and the highest number of fetches of one blob.
type fetched struct{ blobs, times, most int }

// measureIndex starts the manager and waits until everything is scanned. The manager keeps running.
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
	if err := wait.Eventually(ctx, waitTimeout, wait.Often, c.covered); err != nil {
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

// reread holds the measurements of reading all reports again.
type reread struct {
	rate int
	// reading is the time from the first request for a report to the last response. shown is the time until every ImageScan has the
	// result.
	reading, shown time.Duration
	requests       map[string]int
	// layers is the number of fetched layers.
	layers int
	memory memory
}

// measureReread restarts the manager with the given rate, changes the advisories, and waits until every ImageScan has the result.
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
	// The requests of the manager's start are over once it has read the state of Clair's data twice.
	c.requests.reset()
	err = wait.Eventually(ctx, waitTimeout, wait.Often, func(context.Context) error {
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
	if err := errors.Join(c.manager.ResetPeak(), c.importVersion(ctx, version)); err != nil {
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

// awaitChange waits until every ImageScan has the added findings.
func (c *cluster) awaitChange(ctx context.Context, before map[int]int, m *reread) error {
	want := 0
	for number := range before {
		want = number + addedFindings
	}
	err := wait.Eventually(ctx, waitTimeout, wait.Often, func(ctx context.Context) error {
		// Listing all ImageScans loads the API server, so it waits until all reports have been read.
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
