package registry

import (
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// matchHost reports whether a host matches a pattern, label by label. A label of the pattern may hold wildcards, which do not span
// labels (https://kubernetes.io/docs/concepts/containers/images/#config-json).
func matchHost(pattern, host string) bool {
	labels, wanted := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(labels) != len(wanted) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(labels[i], wanted[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// hosts maps canonical hosts to registries that need more than the defaults.
type hosts map[string]workerapi.Registry

func hostsOf(registries []workerapi.Registry) hosts {
	all := make(hosts, len(registries))
	for _, registry := range registries {
		all[workerapi.CanonicalHost(registry.Host)] = registry
	}
	return all
}

// configFor returns the configuration of a host; the zero value, which means the defaults, if there is none.
func (h hosts) configFor(host string) workerapi.Registry { return h[workerapi.CanonicalHost(host)] }

// Validate returns an error about the first registry with an unusable configuration.
func Validate(registries []workerapi.Registry) error {
	for _, registry := range registries {
		if registry.Host == "" || strings.ContainsAny(registry.Host, "/@ ") {
			return fmt.Errorf("%q is not a host name, with its port if needed", registry.Host)
		}
		if registry.CABundle != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(registry.CABundle)) {
			return fmt.Errorf("caBundle of %s must hold at least one certificate in PEM format", registry.Host)
		}
		if problem := registry.ProviderProblem(); problem != "" {
			return fmt.Errorf("provider %q of %s %s", registry.Provider, registry.Host, problem)
		}
		for _, mirror := range registry.Mirrors {
			if err := validateMirror(mirror); err != nil {
				return fmt.Errorf("mirror %q of %s: %w", mirror, registry.Host, err)
			}
		}
	}
	return nil
}

// validateMirror requires an unambiguous prefix: without a dot or a port, the first part of a mirror would be read as
// a repository of Docker Hub.
func validateMirror(mirror string) error {
	host, _, _ := strings.Cut(mirror, "/")
	repository, err := name.NewRepository(mirror + "/repository")
	if err != nil {
		return err
	}
	if workerapi.CanonicalHost(repository.RegistryStr()) != workerapi.CanonicalHost(host) || strings.Contains(mirror, "//") {
		return errors.New("it must begin with a host name that has a dot or a port, without a scheme")
	}
	return nil
}
