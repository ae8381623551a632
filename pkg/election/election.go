// Package election has what the Leases of the manager and of the notifier share: their times, the flags for them, and the lock.
package election

import (
	"errors"
	"flag"
	"fmt"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Times are the times of a Lease. A zero time stands for a default.
type Times struct {
	// LeaseDuration is how long the others wait for a holder that does not renew, in whole seconds. RenewDeadline is shorter: the holder
	// stops when it could not renew for that long. RetryPeriod is how often the holder renews and the others try.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

var (
	// ForReplicas are the times where another replica waits. The holder outlives a restart of the API server.
	ForReplicas = Times{LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 4 * time.Second}
	// ForOneHolder are the times where something else keeps a second holder out, such as the lock of a file. The holder outlives a minute
	// without an API server.
	ForOneHolder = Times{LeaseDuration: 90 * time.Second, RenewDeadline: 75 * time.Second, RetryPeriod: 4 * time.Second}
)

const (
	// retryJitter is the maximum factor by which client-go extends its retry period (JitterFactor of k8s.io/client-go/tools/leaderelection).
	retryJitter = 1.2
	// requestTimeout bounds one request for a Lease, so that a connection that hangs does not use up the renew deadline.
	requestTimeout = 5 * time.Second
)

// AddFlags adds a flag for each time. defaults describes the times that a flag that is not given stands for.
func (t *Times) AddFlags(flags *flag.FlagSet, defaults string) {
	flags.DurationVar(&t.LeaseDuration, "leader-elect-lease-duration", 0, "how long another replica waits for the lease of one that has crashed, in whole seconds (default "+defaults+")")
	flags.DurationVar(&t.RenewDeadline, "leader-elect-renew-deadline", 0, "how long this replica works on when it cannot renew its lease. Less than the lease's duration (default 20s; 75s where the lease has 90s)")
	flags.DurationVar(&t.RetryPeriod, "leader-elect-retry-period", 0, "how often the lease is renewed, or tried to get. Less than 5/6 of the deadline (default 4s)")
}

// Or returns the times with those of defaults in the place of zero ones.
func (t Times) Or(defaults Times) Times {
	for _, pair := range []struct{ set, standard *time.Duration }{
		{&t.LeaseDuration, &defaults.LeaseDuration}, {&t.RenewDeadline, &defaults.RenewDeadline}, {&t.RetryPeriod, &defaults.RetryPeriod},
	} {
		if *pair.set == 0 {
			*pair.set = *pair.standard
		}
	}
	return t
}

// Validate returns an error that names the flag. client-go would only say that one number must be greater than another.
func (t Times) Validate() error {
	switch {
	case t.LeaseDuration < time.Second || t.LeaseDuration%time.Second != 0: // a Lease counts in seconds
		return fmt.Errorf("--leader-elect-lease-duration: must be whole seconds, at least 1s, not %s", t.LeaseDuration)
	case t.RenewDeadline >= t.LeaseDuration:
		return fmt.Errorf("--leader-elect-renew-deadline: %s must be less than --leader-elect-lease-duration, which is %s, or two replicas would work at once", t.RenewDeadline, t.LeaseDuration)
	case t.RetryPeriod <= 0 || time.Duration(retryJitter*float64(t.RetryPeriod)) >= t.RenewDeadline:
		return fmt.Errorf("--leader-elect-retry-period: %s must be more than 0 and less than 5/6 of --leader-elect-renew-deadline, which is %s", t.RetryPeriod, t.RenewDeadline)
	}
	return nil
}

// NewLock returns the lock of a Lease. Processes with the same identity take the Lease from each other at once, so only one of them may run.
func NewLock(config *rest.Config, namespace, name, identity string) (resourcelock.Interface, error) {
	if identity == "" {
		return nil, errors.New("election: an identity is needed")
	}
	limited := rest.AddUserAgent(config, "leader-election")
	limited.Timeout = requestTimeout
	leases, err := coordinationclient.NewForConfig(limited)
	if err != nil {
		return nil, fmt.Errorf("client for the lease %s: %w", name, err)
	}
	return resourcelock.New(resourcelock.LeasesResourceLock, namespace, name, nil, leases, resourcelock.ResourceLockConfig{Identity: identity})
}
