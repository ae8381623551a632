package notifier

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// epochs keeps the highest epoch of a manager that the notifier has seen. It is safe for concurrent use.
type epochs struct {
	mu      sync.Mutex
	highest int64
}

// admit reports whether no higher epoch was seen, and then refuses all lower ones from now on.
func (e *epochs) admit(epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch < e.highest {
		return false
	}
	e.highest = epoch
	return true
}

func (e *epochs) current() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.highest
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
	if status, problem := s.admit(r); problem != "" {
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
	if !s.epochs.admit(epoch) {
		s.refuseEpoch(w, epoch)
		return
	}
	s.Log.Info("a manager begins to lead", "epoch", epoch)
	w.WriteHeader(http.StatusNoContent)
}

// refuseEpoch answers a request whose epoch is too low.
func (s *Server) refuseEpoch(w http.ResponseWriter, epoch int64) {
	deposed := &announce.DeposedError{Epoch: epoch, Current: s.epochs.current()}
	s.Log.Warn("refused a manager that does not lead any more", "epoch", epoch, "current", deposed.Current)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(announce.EpochRefusal{Reason: announce.ReasonDeposed, Message: deposed.Error(), Epoch: deposed.Current})
}
