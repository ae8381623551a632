package notifier_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// TestEpochs: the notifier delivers for the highest epoch that it has seen and for no lower one. Managers without epochs count as epoch 0.
func TestEpochs(t *testing.T) {
	w := newWorld(t, nil)
	for i, step := range []struct {
		epoch   int64
		deposed bool
	}{
		{0, false}, // an older manager, while no epoch was seen
		{3, false},
		{3, false},
		{0, true},
		{2, true},
		{5, false}, // not every epoch has a delivery
		{3, true},
		{4, true},
		{5, false},
	} {
		id := string(rune('a' + i%6))
		before := len(w.slack.Messages())
		got := w.leader(step.epoch).Send(context.Background(), delivery(strings.Repeat(id, i+1)))
		sent := len(w.slack.Messages()) - before
		switch {
		case step.deposed && (got.Result != announce.Temporary || got.Reason != announce.ReasonDeposed || sent != 0):
			t.Errorf("step %d, epoch %d: outcome %+v, %d messages, want Deposed and none", i, step.epoch, got, sent)
		case !step.deposed && (got.Result != announce.Delivered || sent != 1):
			t.Errorf("step %d, epoch %d: outcome %+v, %d messages, want Delivered and one", i, step.epoch, got, sent)
		}
	}
}

// TestBeginEpoch: an announced epoch deposes the managers before it, even if the new leader sends nothing.
func TestBeginEpoch(t *testing.T) {
	w := newWorld(t, nil)
	for range 2 { // the answer to the first one may be lost
		if err := w.leader(8).BeginEpoch(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
	}
	var deposed *announce.DeposedError
	if err := w.leader(7).BeginEpoch(t.Context(), 7); !errors.As(err, &deposed) || deposed.Current != 8 {
		t.Errorf("error %v for epoch 7, want that epoch 8 is the current one", err)
	}
	if got := w.leader(7).Send(t.Context(), delivery("1")); got.Reason != announce.ReasonDeposed {
		t.Errorf("outcome %+v for epoch 7, want Deposed", got)
	}
	if n := len(w.slack.Messages()); n != 0 {
		t.Errorf("Slack has %d messages, want none", n)
	}
	if got := w.leader(8).Send(t.Context(), delivery("1")); got.Result != announce.Delivered {
		t.Errorf("outcome %+v for epoch 8, want Delivered", got)
	}
}

// TestDeposedGetsNoOutcome: a deposed manager is refused also for a message that was delivered before, since it must record nothing.
func TestDeposedGetsNoOutcome(t *testing.T) {
	w := newWorld(t, nil)
	w.leader(1).Send(t.Context(), delivery("1"))
	w.leader(2).Send(t.Context(), delivery("2"))
	if got := w.leader(1).Send(t.Context(), delivery("1")); got.Reason != announce.ReasonDeposed {
		t.Errorf("outcome %+v, want Deposed", got)
	}
}

// TestDeposedWhileWaiting: a message that waits for its slot is not posted any more when a newer leader begins. The newer leader's request for
// the same message joins the wait, and is delivered.
func TestDeposedWhileWaiting(t *testing.T) {
	w := newWorld(t, nil)
	w.leader(1).Send(t.Context(), delivery("1"))
	var newer chan announce.Outcome
	w.onSleep = func() {
		w.onSleep = nil
		newer = make(chan announce.Outcome, 1)
		if err := w.leader(2).BeginEpoch(t.Context(), 2); err != nil {
			t.Error(err)
		}
		second := w.leader(2)
		go func() { newer <- second.Send(context.Background(), delivery("2")) }()
	}
	if got := w.leader(1).Send(t.Context(), delivery("2")); got.Result != announce.Temporary || got.Reason != announce.ReasonDeposed {
		t.Errorf("outcome %+v of the leader before, want Deposed", got)
	}
	if got := <-newer; got.Result != announce.Delivered {
		t.Errorf("outcome %+v of the newer leader, want Delivered", got)
	}
	if n := len(w.slack.Messages()); n != 2 {
		t.Errorf("Slack has %d messages, want each of the two once", n)
	}
}

// TestMalformedEpochs: an epoch that is no number is refused and changes nothing.
func TestMalformedEpochs(t *testing.T) {
	w := newWorld(t, nil)
	call := func(method, path, epoch, token string) int {
		t.Helper()
		request := must(http.NewRequest(method, w.notifier.URL+path, strings.NewReader(string(must(json.Marshal(delivery("1")))))))
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set(announce.EpochHeader, epoch)
		response := must(w.notifier.Client().Do(request))
		defer response.Body.Close()
		return response.StatusCode
	}
	for _, epoch := range []string{"-1", "x", "1.5", "+1", "9223372036854775808"} {
		if status := call(http.MethodPost, announce.DeliveryPath, epoch, managerToken); status != http.StatusBadRequest {
			t.Errorf("delivery with epoch %q: status %d, want 400", epoch, status)
		}
		if status := call(http.MethodPut, announce.EpochPath+epoch, "", managerToken); status != http.StatusBadRequest {
			t.Errorf("epoch %q: status %d, want 400", epoch, status)
		}
	}
	for path, want := range map[string]int{announce.EpochPath + "0": http.StatusBadRequest, announce.EpochPath: http.StatusNotFound} {
		if status := call(http.MethodPut, path, "", managerToken); status != want {
			t.Errorf("PUT %s: status %d, want %d", path, status, want)
		}
	}
	if status := call(http.MethodPut, announce.EpochPath+"9", "", "unknown"); status != http.StatusUnauthorized {
		t.Errorf("epoch of somebody else: status %d, want 401", status)
	}
	if got := w.send("1"); got.Result != announce.Delivered {
		t.Errorf("outcome %+v for a manager without epochs, want Delivered: no epoch was accepted", got)
	}
}
