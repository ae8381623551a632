package scan

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backoff"
)

// A failed image is retried after MinRetry. The delay doubles with each failure up to MaxRetry, less up to a quarter at random.
const (
	MinRetry = time.Minute
	MaxRetry = time.Hour
)

// Backoff returns the delay before the next attempt after a number of failed attempts, which is at least 1. random returns numbers in [0, 1)
// that spread retries, so that images that failed together are not retried together; nil disables the spread. A retry may come earlier than
// planned, but never earlier than atLeast, which the registry or the engine asks for.
func Backoff(attempts int32, atLeast time.Duration, random func() float64) time.Duration {
	wait := backoff.After(int(attempts), MinRetry, MaxRetry)
	jitter := func(wait time.Duration) time.Duration {
		if random == nil {
			return 0
		}
		return time.Duration(float64(wait) / 4 * random())
	}
	return max(wait-jitter(wait), atLeast+jitter(atLeast))
}
