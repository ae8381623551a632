package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// epochs keeps the highest epoch of a manager that the notifier has seen. It is safe for concurrent use.
type epochs struct {
	// lease keeps the epoch beyond the process; nil to keep it in memory only.
	lease *Lease

	mu      sync.Mutex
	highest int64
}

// admit reports whether no higher epoch was seen, and then refuses all lower ones from now on. An error means that the epoch could not be kept.
func (e *epochs) admit(ctx context.Context, epoch int64) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readKept()
	if e.lease != nil && epoch > e.highest {
		kept, err := e.lease.RaiseEpoch(ctx, epoch)
		if err != nil {
			return false, err
		}
		e.highest = max(e.highest, kept)
	}
	if epoch < e.highest {
		return false, nil
	}
	e.highest = epoch
	return true, nil
}

// isCurrent reports whether no epoch above the given one was seen.
func (e *epochs) isCurrent(epoch int64) bool { return e.current() <= epoch }

func (e *epochs) current() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readKept()
	return e.highest
}

// readKept raises the epoch to the one that the holder of the Lease before this one has kept. The caller holds the lock.
func (e *epochs) readKept() {
	if e.lease != nil {
		e.highest = max(e.highest, e.lease.KeptEpoch())
	}
}

// parseEpoch decodes an epoch: a decimal number without a sign.
func parseEpoch(text string) (int64, error) {
	epoch, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, errors.New("an epoch is a decimal number of at most 63 bits")
	}
	return int64(epoch), nil
}

// serveEpoch handles one request as documented at announce.EpochPath.
func (s *Server) serveEpoch(w http.ResponseWriter, r *http.Request) {
	if status, problem := s.admit(w, r); problem != "" {
		http.Error(w, problem, status)
		return
	}
	epoch, err := parseEpoch(r.PathValue("epoch"))
	if err == nil && epoch == 0 {
		err = errors.New("the first epoch is 1")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.refuseAsStandby(w) || !s.admitEpoch(w, r, epoch) {
		return
	}
	s.Log.Info("a manager begins to lead", "epoch", epoch)
	w.WriteHeader(http.StatusNoContent)
}

// admitEpoch reports whether the epoch is not too low, and answers the request otherwise.
func (s *Server) admitEpoch(w http.ResponseWriter, r *http.Request, epoch int64) bool {
	admitted, err := s.epochs.admit(r.Context(), epoch)
	switch {
	case err != nil:
		s.Log.Error("refused a manager whose epoch could not be kept", "error", err)
		w.Header().Set("Retry-After", strconv.Itoa(int(standbyRetry/time.Second)))
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !admitted:
		s.refuseEpoch(w, epoch)
	}
	return admitted
}

// refuseEpoch answers a request whose epoch is too low.
func (s *Server) refuseEpoch(w http.ResponseWriter, epoch int64) {
	deposed := &announce.DeposedError{Epoch: epoch, Current: s.epochs.current()}
	s.Log.Warn("refused a manager that does not lead any more", "epoch", epoch, "current", deposed.Current)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(announce.EpochRefusal{Reason: announce.ReasonDeposed, Message: deposed.Error(), Epoch: deposed.Current})
}
