package storetest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testConcurrentClose(t *testing.T) {
	f := on.newStore(t)
	result := make(chan error)
	reading := make(chan struct{})
	go func() {
		result <- f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), map[store.Artifact]io.Reader{store.ArtifactSBOM: readerFunc(func(p []byte) (int, error) {
			select {
			case <-reading:
			default:
				close(reading)
			}
			return len(p), nil // never ends
		})})
	}()
	<-reading
	must(t, f.Close())
	if err := <-result; !errors.Is(err, store.ErrClosed) {
		t.Errorf("the running call: got %v, want ErrClosed", err)
	}
	if _, err := f.LiveJobs(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a later call: got %v, want ErrClosed", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing again: got %v, want nil", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (on suite) testCancelledCallsLeaveNothing(t *testing.T) {
	f := on.newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	content := readerFunc(func(p []byte) (int, error) {
		cancel()
		return 0, io.EOF
	})
	if err := f.SaveCatalog(ctx, catalogOf("app", f.clock.Now()), map[store.Artifact]io.Reader{store.ArtifactSBOM: content}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while it ran: got %v, want context.Canceled", err)
	}
	if _, err := f.Catalog(t.Context(), "grype", key("app"), store.Cluster); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the cancelled call: got %v, want ErrNotFound", err)
	}
	if _, err := f.SaveReport(ctx, report("app"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: got %v, want context.Canceled", err)
	}
	f.saveCatalogs(t, "app") // the connection still works
}
