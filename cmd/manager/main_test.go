package main

import (
	"runtime/debug"
	"testing"
)

// TestLimitGarbage: the manager collects garbage earlier than Go does by default, and as GOGC says if it is set.
func TestLimitGarbage(t *testing.T) {
	original := debug.SetGCPercent(defaultGCPercent)
	t.Cleanup(func() { debug.SetGCPercent(original) })
	for set, want := range map[int]int{defaultGCPercent: gcPercent, 200: 200, -1: -1} {
		debug.SetGCPercent(set)
		limitGarbage()
		if got := debug.SetGCPercent(original); got != want {
			t.Errorf("with %d, the heap grows by %d percent, want %d", set, got, want)
		}
	}
}
