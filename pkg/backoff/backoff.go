// Package backoff computes the delays between repeated attempts. Callers add their own jitter.
package backoff

import "time"

// After returns the delay after a number of failed attempts: first after one, twice as long after each further one, and at most longest.
// Without a failed attempt it returns 0.
func After(attempts int, first, longest time.Duration) (wait time.Duration) {
	for ; attempts > 0 && wait < longest; attempts-- {
		wait = Next(wait, first, longest)
	}
	return wait
}

// Next returns the delay that follows the previous one: twice as long, at least first and at most longest.
func Next(previous, first, longest time.Duration) time.Duration {
	return min(max(2*previous, first), longest)
}
