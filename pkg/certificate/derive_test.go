package certificate

import (
	"bytes"
	"testing"
)

// TestDerivedKeys: a key is the same after a restart, and different for each purpose and each authority.
func TestDerivedKeys(t *testing.T) {
	derive := func(i *installation, purpose string) []byte {
		t.Helper()
		i.refresh(t)
		key, err := i.DeriveKey(purpose)
		if err != nil || len(key) != 32 {
			t.Fatalf("a key of %d bytes: %v, want 32", len(key), err)
		}
		return key
	}
	i := newInstallation(t)
	if _, err := i.DeriveKey("sessions"); err == nil {
		t.Error("before Refresh there is a key")
	}
	first := derive(i, "sessions")
	i.restart()
	if !bytes.Equal(derive(i, "sessions"), first) {
		t.Error("the key is another one after a restart")
	}
	if bytes.Equal(derive(i, "other"), first) || bytes.Equal(derive(newInstallation(t), "sessions"), first) {
		t.Error("another purpose or another authority has the same key")
	}
}
