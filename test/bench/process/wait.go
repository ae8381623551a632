package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Intervals between looks: at what is timed, and at what is only waited for and takes the server some work to tell.
const (
	Often  = 100 * time.Millisecond
	Rarely = 2 * time.Second
)

// final is an error that waiting does not mend.
type final struct{ error }

// Unwrap returns what is wrong.
func (f *final) Unwrap() error { return f.error }

// Eventually asks until there is no error any more. When that takes too long, the error says what was wrong last.
func Eventually(ctx context.Context, within, interval time.Duration, check func(context.Context) error) error {
	var last error
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		var end *final
		if err == nil || errors.As(err, &end) {
			return err
		}
		if ctx.Err() == nil || last == nil { // what the end of the time itself causes tells nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-ticker.C:
		}
	}
}
