package active

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Bounds of the VulnerabilityExceptions that are in force in one namespace. Whoever counts for the cluster compares the findings with all of them.
const (
	// MaxPerNamespace is their number.
	MaxPerNamespace = 500
	// MaxPatterns is the number of their globs with "*" or "?": only these are compared one by one.
	MaxPatterns = 1000
)

// refused are the exceptions of a namespace that exceed a bound, by name, with the reason and the way out.
type refused map[string]string

// refusedOf returns which exceptions of a namespace exceed a bound. The oldest come first, exceptions of the same age by name. Those that have expired
// at now do not count.
func refusedOf(all []*v1alpha1.VulnerabilityException, now time.Time) refused {
	patterns := 0
	for _, e := range all {
		patterns += patternsOf(&e.Spec)
	}
	if len(all) <= MaxPerNamespace && patterns <= MaxPatterns {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *v1alpha1.VulnerabilityException) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	out, n := make(refused), 0
	patterns = 0
	for _, e := range sorted {
		own := patternsOf(&e.Spec)
		switch {
		case e.Spec.ExpirationTime != nil && !now.Before(e.Spec.ExpirationTime.Time):
		case n == MaxPerNamespace:
			out[e.Name] = fmt.Sprintf("it suppresses nothing: at most %d exceptions are in force in a namespace, the oldest first. Delete others, or name more "+
				"vulnerabilities in one: an exception takes 100", MaxPerNamespace)
		case patterns+own > MaxPatterns:
			out[e.Name] = fmt.Sprintf("it suppresses nothing: the exceptions of a namespace may have %d globs with * or ? in all, the oldest exceptions first, and "+
				"the others have %d. Delete others, or use fewer globs in spec.images and spec.packages: names without * and ? are not limited", MaxPatterns, patterns)
		default:
			n, patterns = n+1, patterns+own
		}
	}
	return out
}

// patternsOf returns how many globs with "*" or "?" an exception has.
func patternsOf(spec *v1alpha1.ExceptionSpec) (n int) {
	count := func(glob string) {
		if image.IsGlob(glob) {
			n++
		}
	}
	for _, glob := range spec.Images {
		count(glob)
	}
	for i := range spec.Packages {
		count(spec.Packages[i].Name)
		count(spec.Packages[i].Version)
	}
	return n
}

// Refusals returns which of some exceptions exceed the bounds of their namespace: the reason, or empty. The list must have all exceptions of the
// namespaces that it has any of.
func Refusals(list *v1alpha1.VulnerabilityExceptionList, now time.Time) func(namespace, name string) (reason string) {
	byNamespace := make(map[string][]*v1alpha1.VulnerabilityException)
	for i := range list.Items {
		e := &list.Items[i]
		byNamespace[e.Namespace] = append(byNamespace[e.Namespace], e)
	}
	of := make(map[string]refused)
	for namespace, all := range byNamespace {
		of[namespace] = refusedOf(all, now)
	}
	return func(namespace, name string) string { return of[namespace][name] }
}
