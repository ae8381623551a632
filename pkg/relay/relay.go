// Package relay passes what any replica of the manager has seen to the one that leads: that a worker has brought a result, say, or that an image is
// to be scanned again. The leader itself acts at once. The others leave a notice in the store, which also outlives a change of the leader.
//
// No change of the leader loses what is in the store. A former leader can take notices only until the next one has begun its term, and the next one
// reconciles all objects after that. What a former leader sees later than that, before it knows that it leads no more, it leaves for the next one. What
// a leader keeps in its memory alone, such as why a worker could not install a database, is known again when the worker reports the next time.
package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// pollInterval is how often the leader looks for notices: one read of a table that is nearly always empty.
const pollInterval = time.Second

// sendTimeout bounds one notice. Its sender may have ended its request by then.
const sendTimeout = 10 * time.Second

// Store is the part of the operator's store that a relay uses.
type Store interface {
	Notify(ctx context.Context, n store.Notice) error
	TakeNotices(ctx context.Context) ([]store.Notice, error)
	// IsFenced reports whether another replica has begun to lead, although this one may not know it yet.
	IsFenced(ctx context.Context) (bool, error)
}

// Handler acts on a notice, on the leader. It must not block.
type Handler func(ctx context.Context, subject, content string)

// Relay is safe for concurrent use once all handlers are set.
type Relay struct {
	Store Store
	// Leads reports whether this replica leads.
	Leads func() bool
	Log   logr.Logger

	handlers map[string]Handler
}

// Handle sets what the leader does about a kind of notice. Each kind has one handler, which is set before the relay is used.
func (r *Relay) Handle(kind string, h Handler) {
	if r.handlers == nil {
		r.handlers = map[string]Handler{}
	}
	if r.handlers[kind] != nil {
		panic("relay: two handlers for kind " + kind)
	}
	r.handlers[kind] = h
}

// Send has the leader act on a notice. Its context is that of a request, for which every replica may write (store.ForAnyReplica): what a loop of
// the leader sends when it leads no more is nobody's concern. An error is logged: what a notice asks for is found out later without it.
func (r *Relay) Send(ctx context.Context, kind, subject, content string) {
	leads := r.Leads()
	if leads {
		r.handle(ctx, store.Notice{Kind: kind, Subject: subject, Content: content})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	if leads && !r.isFenced(ctx) {
		return
	}
	err := r.Store.Notify(ctx, store.Notice{Kind: kind, Subject: subject, Content: content})
	if err != nil && !errors.Is(err, store.ErrNotLeading) {
		r.Log.Error(err, "Leaving a notice for the replica that leads", "kind", kind, "subject", subject)
	}
}

// isFenced reports whether this replica leads no more, although it does not know it yet. If the store cannot be read, a notice
// could not be left either.
func (r *Relay) isFenced(ctx context.Context) bool {
	if r.Store == nil { // there is one replica
		return false
	}
	fenced, err := r.Store.IsFenced(ctx)
	return err == nil && fenced
}

// Run acts on the notices of other replicas until the context ends. It runs on the leader.
func (r *Relay) Run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	failing := false
	for {
		notices, err := r.Store.TakeNotices(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.Log.Error(err, "Taking the notices of other replicas; it is tried again until it succeeds")
		}
		failing = err != nil
		for _, n := range notices {
			r.handle(ctx, n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *Relay) handle(ctx context.Context, n store.Notice) {
	h := r.handlers[n.Kind]
	if h == nil { // of a replica of a newer version
		r.Log.Info("Ignored a notice of an unknown kind", "kind", fmt.Sprintf("%.64q", n.Kind))
		return
	}
	h(ctx, n.Subject, n.Content)
}
