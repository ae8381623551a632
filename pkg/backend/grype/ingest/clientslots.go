package ingest

import (
	"context"
	"sync"
)

// clientSlots are slots of which each client holds at most its share. A request that waits for a slot of its client's share holds none of
// the common slots, so a client with many requests delays only its own.
type clientSlots struct {
	all   slots
	share int

	mu      sync.Mutex
	clients map[string]*clientShare
}

// clientShare is the share of a client. It exists while a request of the client waits for a slot or holds one.
type clientShare struct {
	slots
	requests int
}

func newClientSlots(all, share int) *clientSlots {
	return &clientSlots{all: make(slots, all), share: share, clients: map[string]*clientShare{}}
}

// acquire waits for a slot until the context ends. The slot is held until release is called.
func (c *clientSlots) acquire(ctx context.Context, client string) (release func(), err error) {
	share := c.join(client)
	releaseShare, err := share.acquire(ctx)
	if err != nil {
		c.leave(client)
		return nil, err
	}
	releaseAll, err := c.all.acquire(ctx)
	if err != nil {
		releaseShare()
		c.leave(client)
		return nil, err
	}
	return func() {
		releaseAll()
		releaseShare()
		c.leave(client)
	}, nil
}

// join counts a request of a client and returns the client's share.
func (c *clientSlots) join(client string) *clientShare {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.clients[client]
	if share == nil {
		share = &clientShare{slots: make(slots, c.share)}
		c.clients[client] = share
	}
	share.requests++
	return share
}

// leave ends a request of a client. It removes the client's share with the last request.
func (c *clientSlots) leave(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.clients[client]
	if share.requests--; share.requests == 0 {
		delete(c.clients, client)
	}
}
