package controllers

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// engineStates has the last known state of each Scanner's engine. The zero value is ready for use.
type engineStates struct {
	mutex sync.Mutex
	// states is nil before the first check.
	states map[types.NamespacedName]string
}

// DetectEngineChanges wakes the Scanners whose engine is in another state than at the last call. No event announces an engine that stops working,
// or data that becomes too old. DetectEngineChanges must be called periodically. It queries an engine that Scanners share only once. For Clair,
// each Scanner has a backend of its own, and each call of DetectEngineChanges counts as use of it.
func (r *ScannerReconciler) DetectEngineChanges(ctx context.Context) error {
	scanners, err := inventory.ListScanners(ctx, r.Client, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	r.engines.mutex.Lock()
	defer r.engines.mutex.Unlock()
	before, now := r.engines.states, map[types.NamespacedName]string{}
	shared := map[backend.Backend]string{}
	for _, scanner := range scanners {
		engine := r.Backends.For(scanner)
		if engine == nil {
			continue
		}
		if _, asked := shared[engine]; !asked {
			shared[engine] = engineState(ctx, engine)
		}
		name := client.ObjectKeyFromObject(scanner)
		now[name] = shared[engine]
		if known, found := before[name]; found && known != now[name] {
			r.Wakeups.Scanner(ctx, scanner)
		}
	}
	r.engines.states = now
	return nil
}

// engineState returns a text that changes exactly when Scanners have to show another state of the engine.
func engineState(ctx context.Context, engine backend.Backend) string {
	version, err := engine.DataVersion(ctx)
	if err != nil {
		return fmt.Sprintf("error: %v", err)
	}
	state := "version: " + version.Version
	if reporter, ok := engine.(backend.DataReporter); ok {
		state += " problem: " + reporter.DataProblem(version)
	}
	return state
}
