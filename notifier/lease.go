package notifier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/election"
)

const (
	// LeaseName is the name of the Lease, in the notifier's namespace.
	LeaseName = "scanner-operator-notifier"
	// EpochAnnotation is the annotation of the Lease with the highest epoch of a manager that was seen.
	EpochAnnotation = "scanner-operator.io/epoch"
	// leaseTimeout bounds one request to the API server.
	leaseTimeout = 5 * time.Second
	// standbyRetry is when a caller may retry a request that a standby refused.
	standbyRetry = 2 * time.Second
)

// LeaseConfig holds the settings of a Lease.
type LeaseConfig struct {
	Client    coordinationclient.LeasesGetter
	Namespace string
	// Pod is the name of this notifier's pod, and Address where it takes deliveries, as "IP:port".
	Pod, Address string
	// Times are the times of the Lease: the holder sends nothing more after its renew deadline.
	Times election.Times
	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Lease decides which of several notifiers sends: the holder. The others stand by. It also keeps the highest epoch, which so survives all of
// them. It is safe for concurrent use. docs/understand/decisions/0031-one-of-two-notifiers-sends.md has the reasons.
type Lease struct {
	LeaseConfig
	mu sync.Mutex
	// until is when the holder must stop unless it renews before; zero if another one holds the Lease.
	until time.Time
	// holder is the holder's identity as last seen; empty if there is none.
	holder string
	// loaded is true once the holder has read the epoch that the holder before it has kept.
	loaded bool
	epoch  int64
}

// NewLease returns a Lease that this notifier does not hold before Run.
func NewLease(c LeaseConfig) *Lease { return &Lease{LeaseConfig: c} }

// identity is the holder's identity in the Lease. No name of a pod has an underscore.
func (l *Lease) identity() string { return l.Pod + "_" + l.Address }

// Run acquires the Lease, renews it, and acquires it again after it was lost, until the context ends. Then it releases the Lease, so that
// another notifier need not wait until it expires.
func (l *Lease) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &sendingLock{lease: l, LeaseLock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: LeaseName}, Client: l.Client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity()},
			}},
			LeaseDuration: l.Times.LeaseDuration, RenewDeadline: l.Times.RenewDeadline, RetryPeriod: l.Times.RetryPeriod,
			ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: l.load, OnStoppedLeading: l.stop},
		})
		if err != nil {
			return fmt.Errorf("lease %s: %w", LeaseName, err)
		}
		elector.Run(ctx)
	}
	return nil
}

// load reads the epoch that the holder before this one has kept. Nothing is sent before.
func (l *Lease) load(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, l.Times.RetryPeriod, true, func(ctx context.Context) (bool, error) {
		lease, err := l.get(ctx)
		var epoch int64
		if err == nil {
			epoch, err = epochOf(lease)
		}
		if err != nil {
			l.Log.Error("cannot send yet", "error", err)
			return false, nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if ctx.Err() == nil { // otherwise the Lease was lost, and the holder after this one may raise the epoch
			l.epoch, l.loaded = max(l.epoch, epoch), true
			l.Log.Info("this notifier sends", "lease", LeaseName, "epoch", l.epoch)
		}
		return true, nil
	})
}

func (l *Lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded {
		l.Log.Warn("this notifier does not send any more", "lease", LeaseName)
	}
	l.until, l.loaded = time.Time{}, false
}

// Sends reports whether this notifier may begin to send a message now. It does not rely on the renewal, which may be blocked or paused:
// after the deadline, another notifier may send.
func (l *Lease) Sends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded && l.Clock.Now().Before(l.until)
}

// Standby returns why this notifier does not send, and the address of the one that does; empty if that is not known.
func (l *Lease) Standby() (why, sender string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pod, address, _ := strings.Cut(l.holder, "_")
	switch l.holder {
	case "":
		return "stands by: no notifier holds the Lease " + LeaseName + " yet", ""
	case l.identity():
		return "stands by: the Lease " + LeaseName + " could not be renewed, or its epoch could not be read", ""
	}
	return "stands by: " + pod + " sends", address
}

// KeptEpoch returns the epoch as last read from the Lease, or written to it.
func (l *Lease) KeptEpoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// RaiseEpoch keeps an epoch in the Lease, unless a higher one is there, and returns the one that is there then. It fails if another notifier
// holds the Lease.
func (l *Lease) RaiseEpoch(ctx context.Context, epoch int64) (kept int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	// The renewal writes the Lease as well, so a conflict is no error.
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		kept, err = l.tryRaiseEpoch(ctx, epoch)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return 0, fmt.Errorf("keep epoch %d in the lease %s: %w", epoch, LeaseName, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch = max(l.epoch, kept)
	return kept, nil
}

func (l *Lease) tryRaiseEpoch(ctx context.Context, epoch int64) (int64, error) {
	lease, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != l.identity() {
		return 0, errors.New("another notifier holds it")
	}
	kept, err := epochOf(lease)
	if err != nil || kept >= epoch {
		return kept, err
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, EpochAnnotation, strconv.FormatInt(epoch, 10))
	_, err = l.Client.Leases(l.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	return epoch, err
}

func (l *Lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return l.Client.Leases(l.Namespace).Get(ctx, LeaseName, metav1.GetOptions{})
}

func epochOf(lease *coordinationv1.Lease) (int64, error) {
	text, kept := lease.Annotations[EpochAnnotation]
	if !kept {
		return 0, nil
	}
	epoch, err := parseEpoch(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s of the Lease %s is %.32q: %w; remove it, and restart the notifiers", EpochAnnotation, LeaseName, text, err)
	}
	return epoch, nil
}

// sendingLock is the lock of the leader election. It notes until when its holder may send.
type sendingLock struct {
	*resourcelock.LeaseLock
	lease *Lease
}

// Get implements resourcelock.Interface.
func (s *sendingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := s.LeaseLock.Get(ctx)
	if err == nil {
		s.lease.observe(record.HolderIdentity, time.Time{})
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (s *sendingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begun := s.lease.Clock.Now()
	err := s.LeaseLock.Create(ctx, record)
	if err == nil {
		s.lease.observe(record.HolderIdentity, begun)
	}
	return err
}

// Update implements resourcelock.Interface.
func (s *sendingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != s.lease.identity() { // the holder releases the Lease, and must not send from here on
		s.lease.observe("", time.Time{})
	}
	begun := s.lease.Clock.Now()
	err := s.LeaseLock.Update(ctx, record)
	if err == nil {
		s.lease.observe(record.HolderIdentity, begun)
	}
	return err
}

// observe notes the holder. renewed is when the request began that made or kept this notifier the holder; zero if it was only read. The others
// count the Lease's duration from a later time, when they see that request's effect.
func (l *Lease) observe(holder string, renewed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = holder
	switch {
	case holder != l.identity():
		l.until = time.Time{}
	case !renewed.IsZero():
		l.until = renewed.Add(l.Times.RenewDeadline)
	}
}

// sends reports whether this notifier may begin to send a message now.
func (s *Server) sends() bool { return s.Lease == nil || s.Lease.Sends() }

// refuseAsStandby answers a request that only the holder of the Lease may handle, and reports whether this notifier is another one.
func (s *Server) refuseAsStandby(w http.ResponseWriter) bool {
	if s.sends() {
		return false
	}
	why, sender := s.Lease.Standby()
	if sender != "" {
		w.Header().Set(announce.SenderHeader, sender)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(standbyRetry/time.Second)))
	http.Error(w, why, http.StatusServiceUnavailable)
	return true
}
