package certificate

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// TestDerivedKeys: a key is the same after a restart, and different for each purpose and each authority.
func TestDerivedKeys(t *testing.T) {
	derive := func(i *installation, purpose string) []byte {
		t.Helper()
		i.refresh(t)
		keys, err := i.DeriveKeys(purpose)
		if err != nil || len(keys) != 1 || len(keys[0]) != 32 {
			t.Fatalf("%d keys: %v, want one of 32 bytes", len(keys), err)
		}
		return keys[0]
	}
	i := newInstallation(t)
	if _, err := i.DeriveKeys("sessions"); err == nil {
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

// TestDerivedKeysOfTwoProcesses: while one process has seen the next authority promoted and another one has not, each of them has the key that the
// other one seals with. Once the Secret was deleted, the keys from before are gone.
func TestDerivedKeysOfTwoProcesses(t *testing.T) {
	i := newInstallation(t)
	first, second := i.Authority, &Authority{Client: i.client, Reader: i.client, Clock: i.clock, Namespace: namespace, Secret: secretName}
	refresh := func(authorities ...*Authority) {
		t.Helper()
		for _, a := range authorities {
			if err := a.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys := func(a *Authority) [][]byte {
		t.Helper()
		keys, err := a.DeriveKeys("sessions")
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	opens := func(step string, sealing, opening *Authority) {
		t.Helper()
		if !slices.ContainsFunc(keys(opening), func(key []byte) bool { return bytes.Equal(key, keys(sealing)[0]) }) {
			t.Errorf("%s: a process lacks the key that the other one seals with", step)
		}
	}
	refresh(first, second)
	i.advanceClock(authorityLifetime - renewBefore + time.Hour)
	refresh(first, second)
	before := keys(first)[0]
	i.advanceClock(overlap)
	refresh(first)
	if bytes.Equal(keys(first)[0], before) {
		t.Fatal("the next authority was not promoted after a day")
	}
	for range 2 { // the first one refreshes again before the second one does
		opens("the first one has promoted", first, second)
		opens("the first one has promoted", second, first)
		refresh(first)
	}
	refresh(second)
	opens("both have refreshed", first, second)
	if !bytes.Equal(keys(second)[1], before) {
		t.Error("the sessions of the previous authority end when the process learns of the next one")
	}

	if err := i.client.Delete(t.Context(), i.secret(t, secretName)); err != nil {
		t.Fatal(err)
	}
	refresh(first, second)
	if got := keys(second); len(got) != 1 {
		t.Errorf("%d keys after the Secret was deleted, want only that of the new authority", len(got))
	}
}
