// Package input defines the compact match input: the part of an SBOM that matching needs, and how a worker receives and reads it.
//
// It promises that matching a compact input gives exactly the findings that matching the full SBOM gives,
// and that a received input is bounded. It is the only package that must change if Grype reads other parts of an
// SBOM.
package input
