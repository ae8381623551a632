package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// noticedEngines remembers how each Scanner's engine was when it was last looked at. The zero value is ready for use.
type noticedEngines struct {
	mutex sync.Mutex
	// states are nil before the first look.
	states map[types.NamespacedName]string
}

// NoticeEngines wakes up the Scanners of engines that are in another state than at the last call: an engine that stops working, and data
// that gets too old, come with no event. It is to be called now and then, and asks an engine that all Scanners share once. Of Clair, each
// Scanner has an access of its own, which counts as in use while it is asked for here.
func (r *ScannerReconciler) NoticeEngines(ctx context.Context) error {
	var scanners v1alpha1.ScannerList
	if err := r.Client.List(ctx, &scanners, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	r.engines.mutex.Lock()
	defer r.engines.mutex.Unlock()
	before, now := r.engines.states, map[types.NamespacedName]string{}
	shared := map[backend.Backend]string{}
	for i := range scanners.Items {
		engine := r.Backends.For(&scanners.Items[i])
		if engine == nil {
			continue
		}
		if _, asked := shared[engine]; !asked {
			shared[engine] = stateOfEngine(ctx, engine)
		}
		name := client.ObjectKeyFromObject(&scanners.Items[i])
		now[name] = shared[engine]
		if known, found := before[name]; found && known != now[name] {
			r.Wakeups.Scanner(ctx, &scanners.Items[i])
		}
	}
	r.engines.states = now
	return nil
}

// stateOfEngine is the same as long as Scanners have the same to say of an engine.
func stateOfEngine(ctx context.Context, engine backend.Backend) string {
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
