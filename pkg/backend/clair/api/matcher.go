package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/quay/claircore"
)

// Paths of the API (clair, httptransport/server.go).
const (
	pathVulnerabilityReport = "/matcher/api/v1/vulnerability_report/"
	pathUpdateOperation     = "/matcher/api/v1/internal/update_operation"
)

// VulnerabilityReport matches an indexed manifest with Clair's current data. The report is silently incomplete until every expected
// updater has run, see UpdateOperations.
func (c *Client) VulnerabilityReport(ctx context.Context, digest claircore.Digest) (*claircore.VulnerabilityReport, error) {
	if digest.String() == "" {
		return nil, errNoDigest
	}
	got, err := c.do(ctx, call{
		method: http.MethodGet, path: pathVulnerabilityReport + digest.String(), limit: c.options.MaxAnswerBytes,
		// The server sends 200, its API description has 201.
		accept: []int{http.StatusOK, http.StatusCreated},
	})
	if err != nil {
		return nil, err
	}
	return c.vulnerabilityReport(got, digest)
}

func (c *Client) vulnerabilityReport(got *answer, digest claircore.Digest) (*claircore.VulnerabilityReport, error) {
	var report claircore.VulnerabilityReport
	if err := c.decode(got, &report); err != nil {
		return nil, err
	}
	err := errors.Join(
		noNulls("packages", report.Packages), noNulls("distributions", report.Distributions),
		noNulls("repository", report.Repositories), noNullLists("environments", report.Environments),
		noNulls("vulnerabilities", report.Vulnerabilities),
	)
	if err := c.checkReport(got, report.Hash, digest, err); err != nil {
		return nil, err
	}
	return &report, nil
}

// DataKind is one of the two kinds of data that Clair updates. Each has its own ETag.
type DataKind string

const (
	// Vulnerabilities are advisories.
	Vulnerabilities DataKind = "vulnerability"
	// Enrichments are additional data about advisories, such as CVSS scores.
	Enrichments DataKind = "enrichment"
)

// UpdateOperation is one change of the data by one updater.
type UpdateOperation struct {
	Ref     uuid.UUID `json:"ref"`
	Updater string    `json:"updater"`
	Date    time.Time `json:"date"`
}

// Updates describes Clair's data of one kind.
type Updates struct {
	// Latest holds the last operation of each updater, by name; nil if the answer was "not modified".
	Latest map[string]UpdateOperation
	// ETag for the next request; empty while Clair has no data.
	ETag string
}

// UpdateOperations returns which updaters have run and when they last found something new. etag is that of the previous answer; may be
// empty.
func (c *Client) UpdateOperations(ctx context.Context, kind DataKind, etag string) (Updates, error) {
	accept := []int{http.StatusOK}
	if etag != "" {
		accept = append(accept, http.StatusNotModified)
	}
	got, err := c.do(ctx, call{
		method: http.MethodGet, path: pathUpdateOperation + "?latest=true&kind=" + string(kind),
		etag: etag, limit: maxSmallBytes, accept: accept,
	})
	switch {
	case err != nil:
		return Updates{}, err
	case got.status == http.StatusNotModified:
		return Updates{ETag: etag}, nil
	}
	return c.updates(got)
}

func (c *Client) updates(got *answer) (Updates, error) {
	var operations map[string][]UpdateOperation
	if err := c.decode(got, &operations); err != nil {
		return Updates{}, err
	}
	updates := Updates{Latest: make(map[string]UpdateOperation, len(operations)), ETag: got.header.Get("ETag")}
	if operations == nil || len(updates.ETag) > maxOpaqueBytes {
		return Updates{}, c.invalid(got.status, "the answer holds no update operations")
	}
	for updater, latest := range operations {
		if len(latest) > 0 {
			updates.Latest[updater] = latest[0]
		}
	}
	return updates, nil
}
