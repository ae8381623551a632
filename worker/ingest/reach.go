package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// reachDeadline is how long a server that lets no connection come about is tried at the start: longer than a network
// policy needs to come into force for a new pod, and short enough for users to be told within two minutes.
const reachDeadline = 45 * time.Second

// refusedDeadline is the same for one that refuses connections: longer than a restart with a change of leader, and
// with the last wait still within two minutes. A longer absence costs nothing: the operator tries the image again.
const refusedDeadline = 75 * time.Second

// connectTimeout bounds one connection, the look-up of the name included.
const connectTimeout = 10 * time.Second

// Reach says before any work is done whether its result could be delivered: a network that swallows packets would be
// noticed only at its end. A server that refuses connections may be away for a moment, and is waited for.
func (c *Client) Reach(ctx context.Context) error {
	start := c.config.Clock.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		connection, err := c.config.Dial(ctx, "tcp", c.address())
		switch {
		case err == nil:
			return connection.Close()
		case ctx.Err() != nil:
			return ctx.Err()
		}
		deadline, advice := c.adviceFor(err)
		switch {
		case deadline == 0:
			return nil
		case c.config.Clock.Now().Sub(start) >= deadline:
			return failure.New(workerapi.ReasonIngestUnreachable, fmt.Errorf("%w: %s: %w", ErrUnreachable, advice, err))
		}
		if err := c.config.Clock.Sleep(ctx, c.config.Clock.Jitter(wait)); err != nil {
			return err
		}
	}
}

// adviceFor says how long an error of connecting is waited out, and what to do then; 0 if it says nothing about later.
func (c *Client) adviceFor(err error) (deadline time.Duration, advice string) {
	destination := "the operator's namespace, TCP port " + c.port()
	switch {
	case Swallowed(err):
		return reachDeadline, Advice(err, destination)
	case errors.Is(err, syscall.ECONNREFUSED):
		return refusedDeadline, "connections are refused: either the operator is not running, or a NetworkPolicy rejects what pods of this namespace send: it must allow " + destination
	}
	return 0, ""
}

// Swallowed says that nobody answered at all, as it is with a network policy that denies a pod its way out: neither the
// host nor its name server. Some networks say so by an error of their own.
func Swallowed(err error) bool {
	var network net.Error
	var name *net.DNSError
	return errors.As(err, &name) || errors.As(err, &network) && network.Timeout() ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}

// Advice names what a network policy would have to allow for an error that is Swallowed: the way to names, or to the
// destination.
func Advice(err error, destination string) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host of the name " + name.Name
	case name != nil:
		return "the name " + name.Name + " is not resolved: if a NetworkPolicy limits what pods of this namespace may reach, it must allow DNS (port 53)"
	}
	return "nobody answers: if a NetworkPolicy limits what pods of this namespace may reach, it must allow " + destination
}

// address is the server's host and port.
func (c *Client) address() string { return net.JoinHostPort(c.base.Hostname(), c.port()) }

func (c *Client) port() string {
	if port := c.base.Port(); port != "" {
		return port
	}
	return "443"
}
