// Package server is what the manager serves over HTTPS: the ingest API, by which workers bring what they found.
//
// It trusts nothing that a request says about itself. Who speaks is asked of the API server (TokenReview);
// which image a worker may speak of follows from the manager's own record of the Job that it made. Bodies are
// bounded, before and after decompression, and go to disk in pieces.
package server
