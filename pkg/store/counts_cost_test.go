package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// BenchmarkNamespaceTotals counts 100,000 findings of a cluster with 1,000 exceptions for the first time: in one case for IDs, in the other for packages
// by globs, in some images.
func BenchmarkNamespaceTotals(b *testing.B) {
	f := newStore(b)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("image", i))
	}
	f.saveCatalogs(b, names...)
	for i, name := range names {
		var found []finding.Finding
		for n := range 1000 {
			found = append(found, vulnerable(fmt.Sprintf("CVE-2026-%04d", n), fmt.Sprint("package", n%200)))
		}
		f.report(b, name, found...)
		must(b, f.SetUsage(b.Context(), ImageUsage{Scanner: "cluster", Cluster: true, Namespace: fmt.Sprint("ns", i%10), Key: key(name), Engine: grype, Workloads: []Workload{
			{Namespace: fmt.Sprint("ns", i%10), Kind: "Deployment", Name: name, Container: "main", Repository: "registry.example.com/" + name, Reference: "registry.example.com/" + name + ":1"},
		}}))
	}
	for kind, about := range map[string]func(i int) exception.Exception{
		"ids of the cluster": func(i int) exception.Exception {
			return exception.Exception{Vulnerabilities: []string{fmt.Sprintf("CVE-2026-%04d", i)}}
		},
		"ids of namespaces": func(i int) exception.Exception {
			return exception.Exception{Namespace: fmt.Sprint("ns", i%10), Vulnerabilities: []string{fmt.Sprintf("CVE-2026-%04d", i)}}
		},
		"globs": func(i int) exception.Exception {
			return exception.Exception{Packages: []exception.Package{{Name: fmt.Sprintf("*kage%d?", i)}}, Images: []string{fmt.Sprintf("*/image%d*", i%100)}}
		},
	} {
		b.Run(kind, func(b *testing.B) {
			for n := range b.N {
				var all []exception.Exception
				for i := range 1000 {
					e := about(i)
					e.UID, e.Name = fmt.Sprint(n, " ", i), fmt.Sprint(i)
					all = append(all, e)
				}
				if _, _, err := f.NamespaceTotals(b.Context(), "cluster", exception.NewSet(all, f.clock.Now())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestExceptionsOfOneNamespaceDelayNoOther: the exceptions that one namespace writes do not keep a ClusterScanner from counting, which its status, its
// messages and the overview need for all namespaces.
func TestExceptionsOfOneNamespaceDelayNoOther(t *testing.T) {
	f := newStore(t)
	var many []finding.Finding
	for i := range 1000 {
		many = append(many, vulnerable(fmt.Sprintf("CVE-2026-%04d", i), "openssl"))
	}
	f.saveCatalogs(t, "evil", "good")
	f.report(t, "evil", many...)
	f.report(t, "good", vulnerable("CVE-2026-0001", "openssl"))
	long := "registry.example.com/" + strings.Repeat("a", 220)
	for name, repository := range map[string]string{"evil": long, "good": "registry.example.com/good"} {
		must(t, f.SetUsage(t.Context(), ImageUsage{Scanner: "cluster", Cluster: true, Namespace: name, Key: key(name), Engine: grype, Workloads: []Workload{
			{Namespace: name, Kind: "Deployment", Name: "web", Container: "main", Repository: repository, Reference: repository + ":" + strings.Repeat("a", 128)},
		}}))
	}
	var all []exception.Exception
	for i := range 200 {
		e := exception.Exception{UID: fmt.Sprint(i), Namespace: "evil", Name: fmt.Sprint(i), Packages: []exception.Package{{Name: "*"}}}
		for j := range 50 {
			e.Images = append(e.Images, "*"+strings.Repeat("a?", 90+j)+"!*")
		}
		all = append(all, e)
	}
	set := exception.NewSet(all, f.clock.Now())
	began := time.Now()
	_, by, err := f.NamespaceTotals(t.Context(), "cluster", set)
	must(t, err)
	if took := time.Since(began); took > 2*time.Second || by["good"].Counts.Total() != 1 || by["evil"].Counts.Total() != 1000 {
		t.Errorf("counting took %s, want at most 2 s: %+v", took, by)
	}
}
