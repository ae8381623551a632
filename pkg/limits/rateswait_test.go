package limits

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// TestAbortedWaitsCostNothing: who stops waiting gives its token back, whoever waits behind it.
func TestAbortedWaitsCostNothing(t *testing.T) {
	rates := NewRates(10, 10, clock.RealClock{})
	for range 10 {
		if err := rates.Wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, abort := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 100 {
		waiting.Go(func() { _ = rates.Wait(ctx, "a") })
	}
	time.Sleep(100 * time.Millisecond)
	abort()
	waiting.Wait()
	began := time.Now()
	if err := rates.Wait(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("after 100 aborted waits, the next one takes %s", took)
	}
}
