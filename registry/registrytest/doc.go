// Package registrytest provides small images and registries for tests, including those of the worker. They are generated, need no
// network, and are small enough to read. Only tests import the package.
package registrytest
