package scenario

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Step is one step of the demo.
type Step struct {
	// Name describes what the step does or checks.
	Name string
	// Run executes the step and returns its result in one line.
	Run func(context.Context) (string, error)
}

// RunSteps runs steps one after the other and prints the progress. It stops at the first error and returns it with the name of the step.
func RunSteps(ctx context.Context, out io.Writer, now func() time.Time, steps []Step) error {
	for i, step := range steps {
		fmt.Fprintf(out, "[%d/%d] %s\n", i+1, len(steps), step.Name)
		began := now()
		result, err := step.Run(ctx)
		if err != nil {
			return fmt.Errorf("step %d of %d (%s): %w", i+1, len(steps), step.Name, err)
		}
		fmt.Fprintf(out, "      %s (%.1f s)\n", result, now().Sub(began).Seconds())
	}
	return nil
}
