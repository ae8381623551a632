// Package events tells the clients of the REST API that something has changed, so that they load it again. A hint names a kind and a namespace.
// It never holds data, so the only permission to check is whether a client may know of the namespace.
//
// A Log keeps the latest change of each kind in each namespace, and a Watcher fills it from the store and from a cache of the API server. All
// streams read the same log: a stream is a position in it. A client that reads slowly, or not at all, therefore holds up nobody, costs no memory
// for what it has not read, and gets each change once, however often it happened meanwhile.
package events

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// Change says that resources of a kind have changed, in a namespace or in none.
type Change = restv1.Hint

// maxLogged bounds the entries of a log: two thousand namespaces with changes of every kind.
const maxLogged = 10_000

// Log is the sequence of the latest changes. Each change has one entry, at the position of its last occurrence. All methods are safe for
// concurrent use.
type Log struct {
	// id distinguishes the positions of this log from those of other replicas, and of this one before it was restarted.
	id string

	mu      sync.Mutex
	last    int64
	entries *list.List // of entry, in the order of their positions
	byKey   map[Change]*list.Element
	// forgotten is the position before which the log is not complete.
	forgotten int64
	// grown is closed when the log grows, and replaced.
	grown chan struct{}
}

type entry struct {
	Change
	position int64
}

// NewLog returns an empty log.
func NewLog() *Log {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return &Log{id: hex.EncodeToString(id), entries: list.New(), byKey: map[Change]*list.Element{}, grown: make(chan struct{})}
}

// Add appends changes. It never waits for a stream.
func (l *Log) Add(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		l.last++
		if e, known := l.byKey[c]; known {
			e.Value = entry{c, l.last}
			l.entries.MoveToBack(e)
			continue
		}
		l.byKey[c] = l.entries.PushBack(entry{c, l.last})
		if len(l.byKey) > maxLogged {
			oldest := l.entries.Remove(l.entries.Front()).(entry)
			delete(l.byKey, oldest.Change)
			l.forgotten = oldest.position
		}
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// Reset makes all streams load everything again. It is for a source that may have missed changes.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.forgotten = l.last
	l.entries.Init()
	clear(l.byKey)
	close(l.grown)
	l.grown = make(chan struct{})
}

// End returns the position after the last change.
func (l *Log) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Since returns the changes after a position, without order, and the position after them. If the log is not complete since then, or has more
// than limit changes for which wanted is true, complete is false and there are none. wanted must not call methods of the log.
func (l *Log) Since(position int64, limit int, wanted func(Change) bool) (changes []Change, end int64, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if position < l.forgotten || position > l.last {
		return nil, l.last, false
	}
	for e := l.entries.Back(); e != nil && e.Value.(entry).position > position; e = e.Prev() {
		change := e.Value.(entry).Change
		if !wanted(change) {
			continue
		}
		if len(changes) == limit {
			return nil, l.last, false
		}
		changes = append(changes, change)
	}
	return changes, l.last, true
}

// Wait waits until there is a change after a position, or the context ends.
func (l *Log) Wait(ctx context.Context, position int64) {
	l.mu.Lock()
	grown, has := l.grown, l.last != position
	l.mu.Unlock()
	if has {
		return
	}
	select {
	case <-grown:
	case <-ctx.Done():
	}
}

// idOf returns the text of a position. Clients send it back to resume a stream.
func (l *Log) idOf(position int64) string { return fmt.Sprintf("%s-%d", l.id, position) }

// positionOf returns the position of a text. It is false for one of another log.
func (l *Log) positionOf(id string) (position int64, ok bool) {
	log, number, _ := strings.Cut(id, "-")
	position, err := strconv.ParseInt(number, 10, 64)
	return position, err == nil && log == l.id
}
