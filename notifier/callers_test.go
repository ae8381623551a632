package notifier_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// addressRecorder refuses all callers, and records their addresses.
type addressRecorder []string

func (a *addressRecorder) Allow(ctx context.Context, _ string) error {
	*a = append(*a, limits.AddressIn(ctx))
	return notifier.ErrUnauthenticated
}

// TestCallersCountForTheirAddress: a token is reviewed for the address that it comes from, so that a pod with invented tokens keeps out no other.
func TestCallersCountForTheirAddress(t *testing.T) {
	var recorded addressRecorder
	server := notifier.New(notifier.Config{Callers: &recorded, Log: slog.New(slog.DiscardHandler), Clock: testingclock.NewFakePassiveClock(noon)})
	for path, method := range map[string]string{
		announce.DeliveryPath: http.MethodPost, announce.EpochPath + "1": http.MethodPut, export.Path: http.MethodPost,
	} {
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		r.RemoteAddr = "10.1.2.3:4567"
		r.Header.Set("Authorization", "Bearer invented")
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		if n := len(recorded); w.Code != http.StatusUnauthorized || n == 0 || recorded[n-1] != "10.1.2.3" {
			t.Errorf("%s %s: %d, reviewed for %q, want 401 for 10.1.2.3", method, path, w.Code, recorded)
		}
	}
	if len(recorded) != 3 {
		t.Errorf("%d reviews of 3 requests", len(recorded))
	}
}
