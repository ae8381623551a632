package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// Covered knows how many findings each exception covers, as the ScannerReconciler last counted them. It is empty after a start.
type Covered struct {
	mutex     sync.Mutex
	byScanner map[types.NamespacedName]map[types.NamespacedName]int
}

// count notes what the exceptions in force cover of a Scanner's findings, by UID, and returns those for which that has changed.
func (c *Covered) count(scanner types.NamespacedName, inForce exception.Set, byUID map[string]int) (changed []types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	before, counts := c.byScanner[scanner], map[types.NamespacedName]int{}
	for _, e := range inForce.All() {
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

// forget drops a Scanner that has gone, and returns the exceptions that covered findings of it.
func (c *Covered) forget(scanner types.NamespacedName) (changed []types.NamespacedName) {
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

// of is what an exception covers of some Scanners' findings; not known before each of them was counted with it.
func (c *Covered) of(name types.NamespacedName, scanners []types.NamespacedName) (n int, known bool) {
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
