package config

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of the settings for registries.
const (
	// maxRegistriesBytes bounds all settings together as JSON. Workers get them as one environment variable, and Linux allows a string of
	// 128 KiB (MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html).
	maxRegistriesBytes = 100 << 10
	// maxMirrors bounds the mirrors of one registry. Each may take a Job's time before the next one is tried.
	maxMirrors = 8
)

// hostPattern matches host names as image references allow them (https://github.com/distribution/reference). pathPattern matches the path
// of a mirror, which is the beginning of a repository's name.
var (
	hostPattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	pathPattern = regexp.MustCompile(`^[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
)

// RegistrySettings returns the registries in the form that workers and the registry clients of this process need.
func (c Config) RegistrySettings() []workerapi.Registry {
	settings := make([]workerapi.Registry, 0, len(c.Registries))
	for _, registry := range c.Registries {
		settings = append(settings, workerapi.Registry(registry))
	}
	return settings
}

// Provider returns the cloud whose identity pulls from a registry; empty for none.
func (c Config) Provider(host string) string {
	for _, registry := range c.Registries {
		if workerapi.CanonicalHost(registry.Host) == workerapi.CanonicalHost(host) {
			return registry.Provider
		}
	}
	return ""
}

// Providers returns the clouds whose identities pull from a registry or from one of its mirrors, each once.
func (c Config) Providers(host string) (providers []string) {
	hosts := []string{host}
	for _, registry := range c.Registries {
		if workerapi.CanonicalHost(registry.Host) != workerapi.CanonicalHost(host) {
			continue
		}
		for _, mirror := range registry.Mirrors {
			name, _, _ := strings.Cut(mirror, "/")
			hosts = append(hosts, name)
		}
	}
	for _, host := range hosts {
		if provider := c.Provider(host); provider != "" && !slices.Contains(providers, provider) {
			providers = append(providers, provider)
		}
	}
	return providers
}

// SBOMPolicy returns the policy by which attested SBOMs of an image are accepted, whose repositories are given. It is empty if images of one
// of the registries are cataloged, or if the registries trust different signers: whom one registry trusts says nothing for the other.
func (c Config) SBOMPolicy(repositories ...string) (policy string) {
	return c.commonPolicy(repositories, func(r Registry) string { return r.SBOM.Policy() })
}

// VEXPolicy is SBOMPolicy for OpenVEX documents that are attached to an image.
func (c Config) VEXPolicy(repositories ...string) (policy string) {
	return c.commonPolicy(repositories, Registry.vexPolicy)
}

// VEXHosts returns the hosts whose images the statements count for that were accepted by a policy. There are none if the policy is not configured
// any more.
func (c Config) VEXHosts(policy string) (hosts []string) {
	for _, registry := range c.Registries {
		if policy != "" && registry.vexPolicy() == policy {
			hosts = append(hosts, workerapi.CanonicalHost(registry.Host))
		}
	}
	return hosts
}

// ReadsVEX reports whether OpenVEX documents of any registry's images count.
func (c Config) ReadsVEX() bool {
	return slices.ContainsFunc(c.Registries, func(r Registry) bool { return r.VEX.ReadsImages() })
}

func (r Registry) vexPolicy() string { return workerapi.Registry(r).VEXPolicy() }

// commonPolicy returns the policy that the registries of all repositories have; empty if one has none, or another.
func (c Config) commonPolicy(repositories []string, policyOf func(Registry) string) (policy string) {
	for i, repository := range repositories {
		host, _, _ := strings.Cut(repository, "/")
		of := ""
		for _, registry := range c.Registries {
			if workerapi.CanonicalHost(registry.Host) == workerapi.CanonicalHost(host) {
				of = policyOf(registry)
			}
		}
		if of == "" || i > 0 && of != policy {
			return ""
		}
		policy = of
	}
	return policy
}

// HasSBOMPolicy reports whether a registry has the policy.
func (c Config) HasSBOMPolicy(policy string) bool {
	return slices.ContainsFunc(c.Registries, func(r Registry) bool { return r.SBOM.Policy() == policy })
}

func (c Config) validateRegistries(errs *fieldErrors) {
	seen := map[string]bool{}
	for i, registry := range c.Registries {
		field, host := fmt.Sprintf("registries[%d]", i), workerapi.CanonicalHost(registry.Host)
		switch {
		case !hostPattern.MatchString(registry.Host):
			errs.add(field+".host", "must be a host name, with its port if it has one, and nothing else")
		case seen[host]:
			errs.add(field+".host", "%q stands there twice", registry.Host)
		}
		seen[host] = true
		errs.checkCABundle(field+".caBundle", registry.CABundle)
		registry.validateMirrors(field+".mirrors", errs)
		problem := workerapi.Registry(registry).ProviderProblem()
		errs.check(problem == "", field+".provider", "%s", problem)
		part, problem := registry.SBOM.Problem()
		errs.check(problem == "", field+".sbom."+part, "%s", problem)
		part, problem = workerapi.Registry(registry).VEXProblem()
		errs.check(problem == "", field+".vex."+part, "%s", problem)
	}
	// The workers' JSON has the same fields.
	text, err := json.Marshal(c.Registries)
	errs.check(err == nil && len(text) <= maxRegistriesBytes, "registries",
		"all of them take %d bytes as JSON, more than %d: shorten the caBundles to the authorities that are needed", len(text), maxRegistriesBytes)
}

// extractCertificates returns the certificates of a bundle without the text between them. That text may be a remark. It may also be a private
// key with a broken END line, which would otherwise be passed to every Job.
func extractCertificates(bundle string) (string, error) {
	var certificates []byte
	rest, found := []byte(bundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return "", errors.New("must hold certificates only")
		}
		found++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", fmt.Errorf("certificate %d of it cannot be read: %w", found, err)
		}
		certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	// pem.Decode silently skips what it cannot decode.
	if begun := strings.Count(bundle, "-----BEGIN"); begun > found {
		return "", fmt.Errorf("must hold certificates only, and whole ones: %d begin, and %d of them can be read to their END line", begun, found)
	}
	if bundle != "" && found == 0 {
		return "", errors.New("must hold at least one certificate in PEM format")
	}
	return string(certificates), nil
}

func (r Registry) validateMirrors(field string, errs *fieldErrors) {
	errs.check(len(r.Mirrors) <= maxMirrors, field, "there are %d of them, at most %d are allowed", len(r.Mirrors), maxMirrors)
	seen := map[string]bool{}
	for i, mirror := range r.Mirrors {
		host, path, hasPath := strings.Cut(mirror, "/")
		host = workerapi.CanonicalHost(host)
		problem := ""
		switch {
		// In a reference, a first part with neither dot nor port would be a repository of Docker Hub.
		case !hostPattern.MatchString(host), !strings.ContainsAny(host, ".:") && host != "localhost":
			problem = "must begin with a host name that has a dot or a port, without a scheme"
		case hasPath && !pathPattern.MatchString(path):
			problem = "has a path that is not the beginning of a repository's name"
		case host == workerapi.CanonicalHost(r.Host) && !hasPath:
			problem = "is the registry itself"
		case seen[host+"/"+path]:
			problem = "stands there twice"
		}
		errs.check(problem == "", fmt.Sprintf("%s[%d]", field, i), "%s", problem)
		seen[host+"/"+path] = true
	}
}
