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

// reachDeadline is how long CheckReachable retries if connections get no answer. It is longer than a network
// policy needs to come into force for a new pod, and short enough that users see the failure within two minutes.
const reachDeadline = 45 * time.Second

// refusedDeadline is how long CheckReachable retries if connections are refused. It is longer than a restart with a change of leader. Including
// the last wait, it ends within two minutes. A longer outage costs nothing, since the operator tries the image again.
const refusedDeadline = 75 * time.Second

// connectTimeout bounds one connection, including the resolution of the name.
const connectTimeout = 10 * time.Second

// CheckReachable checks before the work starts whether its result can be delivered. Otherwise, a network that drops packets would be
// noticed only at the end. CheckReachable retries while a server refuses connections, since it may be restarting. CheckReachable ignores
// other errors, which do not predict later attempts, and returns nil.
func (c *Client) CheckReachable(ctx context.Context) error {
	start := c.config.Clock.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		connection, err := c.config.Dial(ctx, "tcp", c.address())
		switch {
		case err == nil:
			return connection.Close()
		case ctx.Err() != nil:
			return ctx.Err()
		}
		deadline, advice := c.retryPolicy(err)
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

// retryPolicy returns how long to retry after an error of connecting, and the advice for users after that time. The deadline is 0
// if the error does not predict later attempts.
func (c *Client) retryPolicy(err error) (deadline time.Duration, advice string) {
	destination := "the operator's namespace, TCP port " + c.port()
	switch {
	case IsUnanswered(err):
		return reachDeadline, EgressAdvice(err, destination)
	case errors.Is(err, syscall.ECONNREFUSED):
		return refusedDeadline, "connections are refused: either the operator is not running, or a NetworkPolicy rejects connections from pods of this namespace: it must allow " + destination
	}
	return 0, ""
}

// IsUnanswered reports whether nothing answered, neither the host nor its name server, as with a network policy that denies
// egress. Some networks report a denial by an error of their own.
func IsUnanswered(err error) bool {
	var network net.Error
	var name *net.DNSError
	return errors.As(err, &name) || errors.As(err, &network) && network.Timeout() ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}

// EgressAdvice returns advice about an error for which IsUnanswered is true: the name does not exist, or a network policy would have to
// allow DNS or the destination.
func EgressAdvice(err error, destination string) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host of the name " + name.Name
	case name != nil:
		return "the name " + name.Name + " cannot be resolved: if a NetworkPolicy limits the egress of pods in this namespace, it must allow DNS (port 53)"
	}
	return "there is no answer: if a NetworkPolicy limits the egress of pods in this namespace, it must allow " + destination
}

// address returns the server's host and port.
func (c *Client) address() string { return net.JoinHostPort(c.base.Hostname(), c.port()) }

func (c *Client) port() string {
	if port := c.base.Port(); port != "" {
		return port
	}
	return "443"
}
