package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/quay/claircore"
)

// Paths of the API (clair, httptransport/server.go).
const (
	pathIndexState  = "/indexer/api/v1/index_state"
	pathIndexReport = "/indexer/api/v1/index_report"
)

// Final states of an index report (claircore, indexer/controller/state.go). All other states are intermediate.
const (
	StateFinished = "IndexFinished"
	StateError    = "IndexError"
)

// errNoDigest is returned for an empty digest, which would address another resource.
var errNoDigest = errors.New("no digest to ask Clair about")

// Finished reports whether the image was indexed. Reports of successful requests may be unfinished too. For StateError see Failure. In any
// other state, including the empty one, indexing is in progress or was interrupted, and only another Index completes it.
func Finished(report *claircore.IndexReport) bool {
	return report != nil && report.State == StateFinished && report.Success
}

// Failure returns why the index report of a manifest has StateError, as an *Error; nil for any other state. The manifest must be the one
// given to Index: its secrets are removed from the message.
func (c *Client) Failure(report *claircore.IndexReport, manifest claircore.Manifest) error {
	if report == nil || report.State != StateError {
		return nil
	}
	e := c.failure(Unavailable, 0, sanitize("index error: "+report.Err, secretsOf(manifest)))
	if e.Layer = layerCause(report.Err); e.Layer != "" {
		e.Kind = LayerFailed
	}
	return e
}

// IndexState returns an opaque version of everything that determines the content of an index report. Reports made in another state are
// outdated.
func (c *Client) IndexState(ctx context.Context) (string, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: pathIndexState, limit: maxSmallBytes, accept: []int{http.StatusOK}})
	if err != nil {
		return "", err
	}
	var document struct{ State string }
	if err := c.decode(got, &document); err != nil {
		return "", err
	}
	if document.State == "" || len(document.State) > maxOpaqueBytes {
		return "", c.invalid(got.status, "the answer holds no state of the indexer")
	}
	return document.State, nil
}

// maxOpaqueBytes bounds opaque values that are kept: states and ETags have some 40 bytes.
const maxOpaqueBytes = 256

// Index has Clair fetch and index the layers that it does not know yet. It returns when that is over: see Finished. If the request ends
// early, Clair stops and keeps a report with an empty state. Layers are ordered from base to top, each with the headers that the registry
// requires.
func (c *Client) Index(ctx context.Context, manifest claircore.Manifest) (*claircore.IndexReport, error) {
	if manifest.Hash.String() == "" {
		return nil, errNoDigest
	}
	// Without If-None-Match: the answer to it says nothing about this manifest.
	return c.indexReport(ctx, manifest.Hash, call{
		method: http.MethodPost, path: pathIndexReport, body: manifest, timeout: c.options.IndexTimeout,
		limit: c.options.MaxAnswerBytes, accept: []int{http.StatusCreated, http.StatusOK}, secrets: secretsOf(manifest),
	})
}

// secretsOf returns the values of the layers' headers, their credentials without the scheme, and passwords.
func secretsOf(manifest claircore.Manifest) []string {
	seen := map[string]bool{}
	var secrets []string
	for _, layer := range manifest.Layers {
		for _, values := range layer.Headers {
			for _, value := range values {
				_, bare, _ := strings.Cut(value, " ")
				basic := http.Request{Header: http.Header{"Authorization": {value}}}
				_, password, _ := basic.BasicAuth()
				for _, secret := range []string{value, bare, password} {
					if secret != "" && !seen[secret] {
						seen[secret] = true
						secrets = append(secrets, secret)
					}
				}
			}
		}
	}
	return secrets
}

// IndexReport returns Clair's index report of a digest, in whatever state: see Finished.
func (c *Client) IndexReport(ctx context.Context, digest claircore.Digest) (*claircore.IndexReport, error) {
	if digest.String() == "" {
		return nil, errNoDigest
	}
	return c.indexReport(ctx, digest, call{
		method: http.MethodGet, path: pathIndexReport + "/" + digest.String(),
		limit: c.options.MaxAnswerBytes, accept: []int{http.StatusOK},
	})
}

func (c *Client) indexReport(ctx context.Context, digest claircore.Digest, call call) (report *claircore.IndexReport, err error) {
	call.needsSlot = true
	call.use = func(got *answer) error {
		report, err = c.decodeIndexReport(got, digest)
		return err
	}
	if _, err := c.do(ctx, call); err != nil {
		return nil, err
	}
	return report, nil
}

func (c *Client) decodeIndexReport(got *answer, digest claircore.Digest) (*claircore.IndexReport, error) {
	var report claircore.IndexReport
	if err := c.decode(got, &report); err != nil {
		return nil, err
	}
	err := errors.Join(
		noNulls("packages", report.Packages), noNulls("distributions", report.Distributions),
		noNulls("repository", report.Repositories), noNullLists("environments", report.Environments),
	)
	if err := c.checkReport(got, report.Hash, digest, err); err != nil {
		return nil, err
	}
	return &report, nil
}

// checkReport checks that a report is about the requested digest and contains no null where callers would have to check for nil.
func (c *Client) checkReport(got *answer, hash, digest claircore.Digest, malformed error) error {
	switch {
	case hash.String() != digest.String():
		return c.invalid(got.status, fmt.Sprintf("the answer is about %q instead of %s", hash, digest))
	case malformed != nil:
		return c.invalid(got.status, sanitize(malformed.Error(), nil))
	}
	return nil
}

func noNulls[V any](field string, of map[string]*V) error {
	for _, value := range of {
		if value == nil {
			return fmt.Errorf("the answer has a null in %s", field)
		}
	}
	return nil
}

func noNullLists[V any](field string, of map[string][]*V) error {
	for _, values := range of {
		for _, value := range values {
			if value == nil {
				return fmt.Errorf("the answer has a null in %s", field)
			}
		}
	}
	return nil
}

// Delete has Clair delete a digest. An unknown digest is no error. Layers that other manifests share stay.
func (c *Client) Delete(ctx context.Context, digest claircore.Digest) error {
	if digest.String() == "" {
		return errNoDigest
	}
	_, err := c.do(ctx, call{
		method: http.MethodDelete, path: pathIndexReport + "/" + digest.String(), limit: maxSmallBytes, accept: []int{http.StatusNoContent},
	})
	return err
}
