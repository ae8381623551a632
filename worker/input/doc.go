// Package input is the compact match input: what is kept of an SBOM for matching, and how it is received.
//
// It promises that matching a compact input gives exactly the findings that matching the full SBOM gives,
// and that a received one is bounded. It is the only package that must change with what Grype reads of an
// SBOM.
package input
