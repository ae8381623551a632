package main

import (
	"context"
	"errors"
	"time"

	"github.com/scanner-operator/scanner-operator/test/wait"
)

// fault is something that goes wrong for a while, or at one moment.
type fault struct {
	// name is what the log and the table call it.
	name string
	// process is the program whose process the fault ends, in the ledger's words; empty for other faults.
	process string
	// delivery is true if the fault may interrupt the delivery of a message, between the operator and Slack's answer.
	delivery bool
	// lasts is true if the fault lasts until end is called. Otherwise it is over when begin returns.
	lasts bool
	// begin starts the fault. errAbsent means that there is nothing to which it could happen now.
	begin func(context.Context) error
	// end ends the fault; nil if it ends by itself. It may be called without begin, and more than once.
	end func(context.Context) error
	// exists reports whether the object of end is there, such as a proxy; nil if it always is.
	exists func() bool
}

// errAbsent means that a fault has no object, such as a worker that does not run.
var errAbsent = errors.New("there is none now")

const (
	// undoTimeout bounds the end of one fault.
	undoTimeout = 2 * time.Minute
	// undoPause is the time between two attempts to end a fault. The API server may be away.
	undoPause = time.Second
)

// undo ends a fault. It goes on after the end of the run, and repeats what fails.
func undo(ctx context.Context, end func(context.Context) error) error {
	return wait.Eventually(context.WithoutCancel(ctx), undoTimeout, undoPause, end)
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
