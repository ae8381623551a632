package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// SuppressionCounts has the number of findings that each exception suppresses, as the ScannerReconciler last counted them. It is empty after a start
// and safe for concurrent use.
type SuppressionCounts struct {
	mutex     sync.Mutex
	byScanner map[types.NamespacedName]map[types.NamespacedName]int
}

// record records how many findings of a Scanner each exception in force suppresses, given by the exception's UID. It returns the exceptions
// whose number has changed.
func (c *SuppressionCounts) record(scanner types.NamespacedName, inForce exception.Set, byUID map[string]int) (changed []types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	before, counts := c.byScanner[scanner], map[types.NamespacedName]int{}
	for _, e := range inForce.All() {
		if e.IsStatement() {
			continue // it is no resource and has no status
		}
		name := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
		counts[name] = byUID[e.UID]
		if n, known := before[name]; !known || n != counts[name] {
			changed = append(changed, name)
		}
	}
	for name, n := range before {
		if _, still := counts[name]; !still && n > 0 {
			changed = append(changed, name)
		}
	}
	if c.byScanner == nil {
		c.byScanner = map[types.NamespacedName]map[types.NamespacedName]int{}
	}
	c.byScanner[scanner] = counts
	return changed
}

// remove drops a deleted Scanner. It returns the exceptions that suppressed findings of that Scanner.
func (c *SuppressionCounts) remove(scanner types.NamespacedName) (changed []types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for name, n := range c.byScanner[scanner] {
		if n > 0 {
			changed = append(changed, name)
		}
	}
	delete(c.byScanner, scanner)
	return changed
}

// total returns how many findings of some Scanners an exception suppresses. known is false until each of these Scanners was counted with that
// exception.
func (c *SuppressionCounts) total(name types.NamespacedName, scanners []types.NamespacedName) (n int, known bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, scanner := range scanners {
		one, counted := c.byScanner[scanner][name]
		if !counted {
			return 0, false
		}
		n += one
	}
	return n, true
}
