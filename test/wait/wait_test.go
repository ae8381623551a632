package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventuallyReturnsLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		err := Eventually(t.Context(), time.Minute, Normally, func(ctx context.Context) error {
			tries++
			return errors.New("2 of 3 images")
		})
		if err == nil || !strings.Contains(err.Error(), "after 1m0s: 2 of 3 images") {
			t.Errorf("got %v, want the last error and the timeout", err)
		}
		if waited := time.Since(began); waited != time.Minute || tries < 100 {
			t.Errorf("got %d checks in %s, want two per second for a minute", tries, waited)
		}
	})
}

func TestEventuallyEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Eventually(t.Context(), time.Minute, Normally, func(context.Context) error { return nil }); err != nil {
			t.Errorf("a check that succeeds: got %v", err)
		}
		if err := Eventually(t.Context(), time.Minute, Normally, func(context.Context) error { return Final(errors.New("gone wrong")) }); err == nil {
			t.Error("a final failure was taken for a success")
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Eventually waited for %s, want no wait after a success and after a final error", waited)
		}
	})
}

func TestConsistentlyFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Consistently(t.Context(), 10*time.Second, Normally, func(context.Context) error {
			if time.Since(began) > 5*time.Second {
				return errors.New("a second message")
			}
			return nil
		})
		if err == nil {
			t.Error("no error, want the one that the check returns after 5 seconds")
		}
	})
}
