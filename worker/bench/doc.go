// Package bench compares the worker with the stock commands that are built from the same libraries: the same images and
// SBOMs, the same database, the same processor, in one run. It contains only tests, which "make bench" runs;
// without its settings they are skipped.
//
// It promises that the compared results are equal: the same findings, the same packages. It does not know the page that
// the figures are written to; see section.
package bench
