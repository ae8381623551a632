package active_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
)

// many returns exceptions of a namespace, each a minute younger than the one before, with some globs each.
func many(namespace string, n, globs int) (all []client.Object) {
	for i := range n {
		e := own(namespace, fmt.Sprintf("e%04d", i), 0)
		e.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i-10_000) * time.Minute))
		for g := range globs {
			e.Spec.Images = append(e.Spec.Images, fmt.Sprintf("*/image%d", g), fmt.Sprintf("registry.example.com/image%d", g))
		}
		all = append(all, e)
	}
	return all
}

// TestBounds: of a namespace's exceptions, the oldest are in force up to the bounds, and those of other namespaces make no difference.
func TestBounds(t *testing.T) {
	expired := many("shop", active.MaxPerNamespace+2, 0)
	for _, o := range expired[:3] {
		o.(*v1alpha1.VulnerabilityException).Spec.ExpirationTime = &metav1.Time{Time: noon.Add(-time.Hour)}
	}
	few := many("shop", 30, 40)
	few = append(few, many("shop", 31, 0)[30])
	for name, tt := range map[string]struct {
		given []client.Object
		want  int
		last  string // the youngest one in force
		why   string // of a refused one
	}{
		"as many as the bound":  {many("shop", active.MaxPerNamespace, 0), active.MaxPerNamespace, "e0499", ""},
		"one more":              {many("shop", active.MaxPerNamespace+1, 0), active.MaxPerNamespace, "e0499", "at most 500 exceptions are in force"},
		"some are over":         {expired, active.MaxPerNamespace - 1, "e0501", ""},
		"globs up to the bound": {many("shop", 25, 40), 25, "e0024", ""},
		"too many globs":        {few, 26, "e0030", "1000 globs with * or ? in all"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sourceOf(t, append(many("play", 3, 1), tt.given...)...)
			set, _, err := s.InForce(t.Context(), "shop")
			if err != nil {
				t.Fatal(err)
			}
			youngest := ""
			for _, e := range set.All() {
				youngest = max(youngest, e.Name)
			}
			if len(set.All()) != tt.want || youngest != tt.last {
				t.Errorf("%d in force, the youngest is %s, want %d and %s", len(set.All()), youngest, tt.want, tt.last)
			}
			if other, _, err := s.InForce(t.Context(), "play"); err != nil || len(other.All()) != 3 {
				t.Errorf("%d exceptions of another namespace, want 3 (error %v)", len(other.All()), err)
			}
			list := &v1alpha1.VulnerabilityExceptionList{}
			for _, o := range tt.given {
				list.Items = append(list.Items, *o.(*v1alpha1.VulnerabilityException))
			}
			why := ""
			for i := range list.Items {
				why = max(why, active.Refusals(list, noon)("shop", list.Items[i].Name))
			}
			if (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
				t.Errorf("refused with %q, want %q", why, tt.why)
			}
		})
	}
}
