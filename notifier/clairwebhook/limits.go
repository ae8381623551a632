package clairwebhook

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Limits are per namespace, not per Scanner: a tenant can create any number of Scanners in a namespace.
const (
	// Concurrent requests.
	maxRequestsPerNamespace = 16
	maxRequests             = 128
	// Notifications that are handled at a time, including those that wait to be read, and those whose webhook has timed out.
	maxWorkPerNamespace = 16
	maxWork             = 128
	// maxReads is how many notifications are read at a time, at most one of each namespace.
	maxReads = 3
	// Lookups of Scanners with their Secrets. Clair creates a notification for each updater and new image, and stops sending for a minute
	// when one is refused. So the burst must be large enough for all of them.
	lookupsPerSecond = 10
	lookupBurst      = 100
	// Notifications that are handled.
	notificationsPerSecond = 5
	notificationBurst      = 100
	// Namespaces for which state is kept.
	maxNamespaces = 10_000
	namespaceAge  = 24 * time.Hour
	// maxLoggedLines bounds the log lines that are remembered so that they are not repeated.
	maxLoggedLines = 1000
)

// take counts one thing for a namespace, or returns errBusy if the namespace, or all together, have the maximum. The caller must call leave once.
func take(q *limits.Quota, namespace string, perNamespace, total int) (leave func(), err error) {
	leave, exceeded := q.Take(limits.Bound{Owner: namespace, Max: perNamespace}, limits.Bound{Max: total}) // no namespace has an empty name
	if exceeded >= 0 {
		return nil, errBusy
	}
	return leave, nil
}
