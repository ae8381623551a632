package clairwebhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/notifier/clairwebhook"
)

// TestCertificate: without files the handshake fails. New files are used without a restart. While the files are broken, the previous
// certificate stays in use.
func TestCertificate(t *testing.T) {
	dir, clock, logs := t.TempDir(), clocktesting.NewFakePassiveClock(noon), &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	certificate := clairwebhook.NewCertificate(dir, clock, log)
	if pair, err := certificate.Get(nil); err == nil {
		t.Errorf("certificate %v of an empty directory", pair)
	}
	if !strings.Contains(logs.String(), dir) {
		t.Errorf("want the empty directory named, the log says %q", logs.String())
	}
	writePair(t, dir, 1)
	serial := func() int64 {
		t.Helper()
		clock.SetTime(clock.Now().Add(11 * time.Second))
		pair, err := certificate.Get(nil)
		must(t, err)
		return pair.Leaf.SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("certificate %d, want 1", got)
	}
	writePair(t, dir, 2)
	if got := serial(); got != 2 {
		t.Errorf("certificate %d, want 2", got)
	}
	before := logs.String()
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), []byte("broken"), 0o600))
	if got := serial(); got != 2 {
		t.Errorf("certificate %d while the files are broken, want 2", got)
	}
	if logs.String() == before {
		t.Error("the broken files are not reported")
	}
}

// writePair writes a certificate with a serial number.
func writePair(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: noon, NotAfter: noon.Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
