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

// exceptionSpec returns a minimal spec of an exception with some fields added, or removed if nil.
func exceptionSpec(fields spec) spec {
	whole := spec{"status": "fixed", "reason": "patched", "vulnerabilities": []any{"CVE-2026-0001"}}
	for key, value := range fields {
		whole[key] = value
		if value == nil {
			delete(whole, key)
		}
	}
	return whole
}

// dryRunExceptions sends both kinds of exception with the given spec to the API server as a dry run, and returns the errors by kind.
func (p *testEnv) dryRunExceptions(s spec) map[string]error {
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
	p := newUnattendedEnv(t)
	packages := make([]any, 50)
	for i := range packages {
		packages[i] = spec{"name": repeatToLength("n", 256), "version": repeatToLength("v", 256), "type": repeatToLength("t", 64)}
	}
	const ends = "2099-01-01T00:00:00Z"
	for name, s := range map[string]spec{
		"the least":              exceptionSpec(nil),
		"packages only":          exceptionSpec(spec{"vulnerabilities": nil, "packages": []any{spec{"name": "linux-*"}}}),
		"a type of packages":     exceptionSpec(spec{"vulnerabilities": nil, "packages": []any{spec{"type": "deb"}}}),
		"a version":              exceptionSpec(spec{"vulnerabilities": nil, "packages": []any{spec{"version": "3.0.*"}}}),
		"not affected":           exceptionSpec(spec{"status": "not_affected", "justification": "vulnerable_code_not_in_execute_path"}),
		"affected":               exceptionSpec(spec{"status": "affected", "action": "wait for the next release", "expirationTime": ends}),
		"under investigation":    exceptionSpec(spec{"status": "under_investigation", "expirationTime": ends}),
		"fixed, for a while":     exceptionSpec(spec{"expirationTime": ends, "action": "nothing"}),
		"already over":           exceptionSpec(spec{"expirationTime": "2001-01-01T00:00:00Z"}),
		"in another time zone":   exceptionSpec(spec{"expirationTime": "2099-01-01T00:00:00+02:00"}),
		"every id, as long":      exceptionSpec(spec{"vulnerabilities": many(100, repeatToLength("C", 125)+"%03d")}),
		"ids of all kinds":       exceptionSpec(spec{"vulnerabilities": []any{"cve-2024-3094", "GHSA-rxwq-x6h5-x525", "RHSA-2024:1234", "ALAS2-2024-1", "DSA-5000-1"}}),
		"every package, as long": exceptionSpec(spec{"packages": packages}),
		"every image, as long":   exceptionSpec(spec{"images": many(50, repeatToLength("*", 510)+"%02d")}),
		"the longest texts":      exceptionSpec(spec{"reason": repeatToLength("ü", 2048), "status": "affected", "action": repeatToLength("<!channel>", 1024), "expirationTime": ends}),
	} {
		t.Run(name, func(t *testing.T) {
			for kind, err := range p.dryRunExceptions(s) {
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
	p.Expect(p.dryRunExceptions(exceptionSpec(spec{"namespaceSelector": spec{"matchLabels": spec{"stage": "test"}, "matchExpressions": []any{
		spec{"key": "team", "operator": "In", "values": many(100, "team-%d")},
	}}}))["ClusterVulnerabilityException"]).To(Succeed())
}

// TestExceptionRejected: the API server rejects each mistake with a message that names the field and the remedy.
func TestExceptionRejected(t *testing.T) {
	p := newUnattendedEnv(t)
	for name, tt := range map[string]struct {
		spec spec
		want []string
	}{
		"nothing":                           {spec{}, []string{"spec.status", "Required value", "spec.reason"}},
		"no status":                         {exceptionSpec(spec{"status": nil}), []string{"spec.status", "Required value"}},
		"another status":                    {exceptionSpec(spec{"status": "ignored"}), []string{"spec.status", `"not_affected", "affected", "fixed", "under_investigation"`}},
		"no reason":                         {exceptionSpec(spec{"reason": nil}), []string{"spec.reason", "Required value"}},
		"an empty reason":                   {exceptionSpec(spec{"reason": ""}), []string{"spec.reason", "at least 1"}},
		"a reason that is too long":         {exceptionSpec(spec{"reason": repeatToLength("r", 1025)}), []string{"spec.reason", "1024"}},
		"about everything":                  {exceptionSpec(spec{"vulnerabilities": nil, "images": []any{"*"}}), []string{"vulnerabilities or packages are needed", "spec.images.exclude of the Scanner"}},
		"no vulnerability":                  {exceptionSpec(spec{"vulnerabilities": []any{}}), []string{"spec.vulnerabilities", "at least 1"}},
		"an empty vulnerability":            {exceptionSpec(spec{"vulnerabilities": []any{""}}), []string{"spec.vulnerabilities[0]", "at least 1"}},
		"a vulnerability in words":          {exceptionSpec(spec{"vulnerabilities": []any{"CVE 2026 1"}}), []string{"spec.vulnerabilities[0]", "should match"}},
		"hyphens that only look like it":    {exceptionSpec(spec{"vulnerabilities": []any{"CVE\u20112026\u20111"}}), []string{"spec.vulnerabilities[0]", "should match"}},
		"a vulnerability twice":             {exceptionSpec(spec{"vulnerabilities": []any{"CVE-1", "CVE-1"}}), []string{"spec.vulnerabilities[1]", "Duplicate value"}},
		"a vulnerability that is too long":  {exceptionSpec(spec{"vulnerabilities": []any{repeatToLength("C", 129)}}), []string{"spec.vulnerabilities[0]", "128"}},
		"too many vulnerabilities":          {exceptionSpec(spec{"vulnerabilities": many(101, "CVE-%d")}), []string{"spec.vulnerabilities", "100"}},
		"no package":                        {exceptionSpec(spec{"packages": []any{}}), []string{"spec.packages", "at least 1"}},
		"a package that selects nothing":    {exceptionSpec(spec{"packages": []any{spec{}}}), []string{"spec.packages[0]", "at least 1"}},
		"a package with an empty name":      {exceptionSpec(spec{"packages": []any{spec{"name": ""}}}), []string{"spec.packages[0].name", "at least 1"}},
		"too many packages":                 {exceptionSpec(spec{"packages": manySpecs(51)}), []string{"spec.packages", "50"}},
		"a package name that is too long":   {exceptionSpec(spec{"packages": []any{spec{"name": repeatToLength("n", 257)}}}), []string{"spec.packages[0].name", "256"}},
		"a version that is too long":        {exceptionSpec(spec{"packages": []any{spec{"version": repeatToLength("n", 257)}}}), []string{"spec.packages[0].version", "256"}},
		"a type that is too long":           {exceptionSpec(spec{"packages": []any{spec{"type": repeatToLength("n", 65)}}}), []string{"spec.packages[0].type", "64"}},
		"no image":                          {exceptionSpec(spec{"images": []any{}}), []string{"spec.images", "at least 1"}},
		"an empty image":                    {exceptionSpec(spec{"images": []any{""}}), []string{"spec.images[0]", "at least 1"}},
		"an image that is too long":         {exceptionSpec(spec{"images": []any{repeatToLength("*", 513)}}), []string{"spec.images[0]", "512"}},
		"too many images":                   {exceptionSpec(spec{"images": many(51, "*/%d")}), []string{"spec.images", "50"}},
		"not affected without a reason why": {exceptionSpec(spec{"status": "not_affected"}), []string{"justification is needed when status is not_affected"}},
		"another justification":             {exceptionSpec(spec{"status": "not_affected", "justification": "because"}), []string{"spec.justification", `"component_not_present"`}},
		"justified though it is fixed":      {exceptionSpec(spec{"justification": "component_not_present"}), []string{"justification may be set only when status is not_affected"}},
		"affected, and nothing is done":     {exceptionSpec(spec{"status": "affected", "expirationTime": "2099-01-01T00:00:00Z"}), []string{"action is needed when status is affected: what is done about the risk"}},
		"affected for ever":                 {exceptionSpec(spec{"status": "affected", "action": "none"}), []string{"expirationTime is needed when status is affected or under_investigation"}},
		"under investigation for ever":      {exceptionSpec(spec{"status": "under_investigation"}), []string{"expirationTime is needed when status is affected or under_investigation"}},
		"an empty action":                   {exceptionSpec(spec{"action": ""}), []string{"spec.action", "at least 1"}},
		"an action that is too long":        {exceptionSpec(spec{"action": repeatToLength("a", 1025)}), []string{"spec.action", "1024"}},
		"an end without a time":             {exceptionSpec(spec{"expirationTime": "2099-01-01"}), []string{"spec.expirationTime", "date-time"}},
		"an end in words":                   {exceptionSpec(spec{"expirationTime": "next week"}), []string{"spec.expirationTime", "date-time"}},
		"a field that there is not":         {exceptionSpec(spec{"until": "2099-01-01T00:00:00Z"}), []string{`unknown field "spec.until"`}},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, err := range p.dryRunExceptions(tt.spec) {
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
	selecting := p.dryRunExceptions(exceptionSpec(spec{"namespaceSelector": spec{}}))
	p.Expect(selecting["VulnerabilityException"]).To(MatchError(ContainSubstring(`unknown field "spec.namespaceSelector"`)), "it is about its own namespace")
	p.Expect(selecting["ClusterVulnerabilityException"]).To(Succeed())
}

func manySpecs(n int) (all []any) {
	for i := range n {
		all = append(all, spec{"name": fmt.Sprint("n", i)})
	}
	return all
}
