package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestDefaultDenyEgressToTheRegistry checks that the message begins with what a network policy would have to allow. Other failures of a
// registry do not blame a network policy.
func TestDefaultDenyEgressToTheRegistry(t *testing.T) {
	get := func(err error) error {
		return fmt.Errorf("pulling x: %w", &url.Error{Op: "Get", URL: "https://registry.example.com/v2/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}})
	}
	for what, c := range map[string]struct {
		err    error
		reason string
		want   string
	}{
		"packets are dropped":       {get(os.ErrDeadlineExceeded), workerapi.ReasonRegistryUnavail, "there is no answer: if a NetworkPolicy limits the egress of pods in this namespace, it must allow the registry: pulling x"},
		"DNS is dropped":            {get(&net.DNSError{Name: "registry.example.com", IsTimeout: true}), workerapi.ReasonRegistryUnavail, "the name registry.example.com cannot be resolved: if a NetworkPolicy limits the egress of pods in this namespace, it must allow DNS (port 53): pulling x"},
		"a wrong name":              {get(&net.DNSError{Name: "registry.example.com", IsNotFound: true}), workerapi.ReasonRegistryUnavail, "there is no host of the name registry.example.com: pulling x"},
		"a certificate":             {get(errors.New("x509: unknown authority")), workerapi.ReasonRegistryUnavail, "pulling x"},
		"a refusal of the registry": {get(os.ErrDeadlineExceeded), workerapi.ReasonUnauthorized, "pulling x"},
	} {
		t.Run(what, func(t *testing.T) {
			got := failure.Describe(withNetworkAdvice(failure.New(c.reason, c.err)), "fallback")
			if got.Reason != c.reason || !strings.HasPrefix(got.Message, c.want) {
				t.Errorf("got %s: %s\nwant %s: %s", got.Reason, got.Message, c.reason, c.want)
			}
		})
	}
}
