// Package registrytest makes small images and registries for tests, of the worker too: generated, offline, and small
// enough to be read. Only tests import it.
package registrytest
