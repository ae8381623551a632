package controllers

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// excepting returns a minimal spec of an exception with some fields added, or removed if nil.
func excepting(fields spec) spec {
	whole := spec{"status": "fixed", "reason": "patched", "vulnerabilities": []any{"CVE-2026-0001"}}
	for key, value := range fields {
		whole[key] = value
		if value == nil {
			delete(whole, key)
		}
	}
	return whole
}

// except sends both kinds of exception with the given spec to the API server as a dry run, and returns the errors by kind.
func (p *place) except(s spec) map[string]error {
	errs := map[string]error{}
	for _, kind := range []string{"VulnerabilityException", "ClusterVulnerabilityException"} {
		o := &unstructured.Unstructured{Object: spec{"spec": s}}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		o.SetName("any")
		if kind == "VulnerabilityException" {
			o.SetNamespace(p.namespace)
		}
		errs[kind] = p.client.Create(p.t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
	}
	return errs
}

// many returns n different texts.
func many(n int, format string) (all []any) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// TestExceptionAccepted: the API server accepts every valid spec of both kinds, up to each bound.
func TestExceptionAccepted(t *testing.T) {
	p := inUnattended(t)
	packages := make([]any, 50)
	for i := range packages {
		packages[i] = spec{"name": long("n", 256), "version": long("v", 256), "type": long("t", 64)}
	}
	const ends = "2099-01-01T00:00:00Z"
	for name, s := range map[string]spec{
		"the least":              excepting(nil),
		"packages only":          excepting(spec{"vulnerabilities": nil, "packages": []any{spec{"name": "linux-*"}}}),
		"a type of packages":     excepting(spec{"vulnerabilities": nil, "packages": []any{spec{"type": "deb"}}}),
		"a version":              excepting(spec{"vulnerabilities": nil, "packages": []any{spec{"version": "3.0.*"}}}),
		"not affected":           excepting(spec{"status": "not_affected", "justification": "vulnerable_code_not_in_execute_path"}),
		"affected":               excepting(spec{"status": "affected", "action": "wait for the next release", "expirationTime": ends}),
		"under investigation":    excepting(spec{"status": "under_investigation", "expirationTime": ends}),
		"fixed, for a while":     excepting(spec{"expirationTime": ends, "action": "nothing"}),
		"already over":           excepting(spec{"expirationTime": "2001-01-01T00:00:00Z"}),
		"in another time zone":   excepting(spec{"expirationTime": "2099-01-01T00:00:00+02:00"}),
		"every id, as long":      excepting(spec{"vulnerabilities": many(100, long("C", 125)+"%03d")}),
		"ids of all kinds":       excepting(spec{"vulnerabilities": []any{"cve-2024-3094", "GHSA-rxwq-x6h5-x525", "RHSA-2024:1234", "ALAS2-2024-1", "DSA-5000-1"}}),
		"every package, as long": excepting(spec{"packages": packages}),
		"every image, as long":   excepting(spec{"images": many(50, long("*", 510)+"%02d")}),
		"the longest texts":      excepting(spec{"reason": long("ü", 2048), "status": "affected", "action": long("<!channel>", 1024), "expirationTime": ends}),
	} {
		t.Run(name, func(t *testing.T) {
			for kind, err := range p.except(s) {
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
	p.Expect(p.except(excepting(spec{"namespaceSelector": spec{"matchLabels": spec{"stage": "test"}, "matchExpressions": []any{
		spec{"key": "team", "operator": "In", "values": many(100, "team-%d")},
	}}}))["ClusterVulnerabilityException"]).To(Succeed())
}

// TestExceptionRejected: the API server rejects each mistake with a message that names the field and the remedy.
func TestExceptionRejected(t *testing.T) {
	p := inUnattended(t)
	for name, tt := range map[string]struct {
		spec spec
		want []string
	}{
		"nothing":                           {spec{}, []string{"spec.status", "Required value", "spec.reason"}},
		"no status":                         {excepting(spec{"status": nil}), []string{"spec.status", "Required value"}},
		"another status":                    {excepting(spec{"status": "ignored"}), []string{"spec.status", `"not_affected", "affected", "fixed", "under_investigation"`}},
		"no reason":                         {excepting(spec{"reason": nil}), []string{"spec.reason", "Required value"}},
		"an empty reason":                   {excepting(spec{"reason": ""}), []string{"spec.reason", "at least 1"}},
		"a reason that is too long":         {excepting(spec{"reason": long("r", 1025)}), []string{"spec.reason", "1024"}},
		"about everything":                  {excepting(spec{"vulnerabilities": nil, "images": []any{"*"}}), []string{"vulnerabilities or packages are needed", "spec.images.exclude of the Scanner"}},
		"no vulnerability":                  {excepting(spec{"vulnerabilities": []any{}}), []string{"spec.vulnerabilities", "at least 1"}},
		"an empty vulnerability":            {excepting(spec{"vulnerabilities": []any{""}}), []string{"spec.vulnerabilities[0]", "at least 1"}},
		"a vulnerability in words":          {excepting(spec{"vulnerabilities": []any{"CVE 2026 1"}}), []string{"spec.vulnerabilities[0]", "should match"}},
		"hyphens that only look like it":    {excepting(spec{"vulnerabilities": []any{"CVE\u20112026\u20111"}}), []string{"spec.vulnerabilities[0]", "should match"}},
		"a vulnerability twice":             {excepting(spec{"vulnerabilities": []any{"CVE-1", "CVE-1"}}), []string{"spec.vulnerabilities[1]", "Duplicate value"}},
		"a vulnerability that is too long":  {excepting(spec{"vulnerabilities": []any{long("C", 129)}}), []string{"spec.vulnerabilities[0]", "128"}},
		"too many vulnerabilities":          {excepting(spec{"vulnerabilities": many(101, "CVE-%d")}), []string{"spec.vulnerabilities", "100"}},
		"no package":                        {excepting(spec{"packages": []any{}}), []string{"spec.packages", "at least 1"}},
		"a package that selects nothing":    {excepting(spec{"packages": []any{spec{}}}), []string{"spec.packages[0]", "at least 1"}},
		"a package with an empty name":      {excepting(spec{"packages": []any{spec{"name": ""}}}), []string{"spec.packages[0].name", "at least 1"}},
		"too many packages":                 {excepting(spec{"packages": manySpecs(51)}), []string{"spec.packages", "50"}},
		"a package name that is too long":   {excepting(spec{"packages": []any{spec{"name": long("n", 257)}}}), []string{"spec.packages[0].name", "256"}},
		"a version that is too long":        {excepting(spec{"packages": []any{spec{"version": long("n", 257)}}}), []string{"spec.packages[0].version", "256"}},
		"a type that is too long":           {excepting(spec{"packages": []any{spec{"type": long("n", 65)}}}), []string{"spec.packages[0].type", "64"}},
		"no image":                          {excepting(spec{"images": []any{}}), []string{"spec.images", "at least 1"}},
		"an empty image":                    {excepting(spec{"images": []any{""}}), []string{"spec.images[0]", "at least 1"}},
		"an image that is too long":         {excepting(spec{"images": []any{long("*", 513)}}), []string{"spec.images[0]", "512"}},
		"too many images":                   {excepting(spec{"images": many(51, "*/%d")}), []string{"spec.images", "50"}},
		"not affected without a reason why": {excepting(spec{"status": "not_affected"}), []string{"justification is needed when status is not_affected"}},
		"another justification":             {excepting(spec{"status": "not_affected", "justification": "because"}), []string{"spec.justification", `"component_not_present"`}},
		"justified though it is fixed":      {excepting(spec{"justification": "component_not_present"}), []string{"justification may be set only when status is not_affected"}},
		"affected, and nothing is done":     {excepting(spec{"status": "affected", "expirationTime": "2099-01-01T00:00:00Z"}), []string{"action is needed when status is affected: what is done about the risk"}},
		"affected for ever":                 {excepting(spec{"status": "affected", "action": "none"}), []string{"expirationTime is needed when status is affected or under_investigation"}},
		"under investigation for ever":      {excepting(spec{"status": "under_investigation"}), []string{"expirationTime is needed when status is affected or under_investigation"}},
		"an empty action":                   {excepting(spec{"action": ""}), []string{"spec.action", "at least 1"}},
		"an action that is too long":        {excepting(spec{"action": long("a", 1025)}), []string{"spec.action", "1024"}},
		"an end without a time":             {excepting(spec{"expirationTime": "2099-01-01"}), []string{"spec.expirationTime", "date-time"}},
		"an end in words":                   {excepting(spec{"expirationTime": "next week"}), []string{"spec.expirationTime", "date-time"}},
		"a field that there is not":         {excepting(spec{"until": "2099-01-01T00:00:00Z"}), []string{`unknown field "spec.until"`}},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, err := range p.except(tt.spec) {
				if err == nil {
					t.Fatalf("%s: it is accepted", kind)
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: the error %q does not say %q", kind, err, want)
					}
				}
			}
		})
	}
	selecting := p.except(excepting(spec{"namespaceSelector": spec{}}))
	p.Expect(selecting["VulnerabilityException"]).To(MatchError(ContainSubstring(`unknown field "spec.namespaceSelector"`)), "it is about its own namespace")
	p.Expect(selecting["ClusterVulnerabilityException"]).To(Succeed())
}

func manySpecs(n int) (all []any) {
	for i := range n {
		all = append(all, spec{"name": fmt.Sprint("n", i)})
	}
	return all
}
