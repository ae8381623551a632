// Package ingest implements the ingest API, with which workers deliver their results to the manager over HTTPS.
//
// It trusts nothing that a request says about itself. The API server authenticates the caller (TokenReview). The manager's own record of
// the Job determines which image a worker may report on. Request bodies are bounded before and after decompression, and are spooled to
// disk in pieces.
package ingest
