package notifier_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier"
)

// TestCertificate: the certificate is read until there is one, replaced when it changes, and kept when the new one is broken.
func TestCertificate(t *testing.T) {
	w := newWorld(t, nil)
	secrets := w.core.Secrets("system")
	certificate := notifier.SecretCertificate(secrets, "serving", slog.New(slog.DiscardHandler))
	first, second := newPair(t, 1), newPair(t, 2)
	var pauses []time.Duration
	var served []*big.Int
	// Changes of the Secret between two reads, in order.
	script := []func(){
		func() { w.cluster.set("system/serving", map[string]string{"tls.crt": "broken"}) },
		func() { w.cluster.set("system/serving", first) },
		func() { w.cluster.set("system/serving", second) },
		func() { w.cluster.set("system/serving", map[string]string{"tls.crt": "broken"}) },
		func() {},
	}
	certificate.Run(context.Background(), func(_ context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		serial := big.NewInt(0)
		if got, err := certificate.Get(nil); err == nil {
			serial = must(x509.ParseCertificate(got.Certificate[0])).SerialNumber
		}
		served = append(served, serial)
		if (serial.Sign() != 0) != certificate.Ready() {
			t.Errorf("Ready is %t while serving certificate %s", certificate.Ready(), serial)
		}
		if len(script) == 0 {
			return errors.New("the end")
		}
		script[0]()
		script = script[1:]
		return nil
	})
	wantPauses := []time.Duration{2 * time.Second, 2 * time.Second, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}
	if diff := cmp.Diff(wantPauses, pauses); diff != "" {
		t.Errorf("pauses between looks (-want +got):\n%s", diff)
	}
	want := []int64{0, 0, 1, 2, 2, 2}
	for i := range served {
		if served[i].Int64() != want[i] {
			t.Errorf("after look %d certificate %s is served, want %d (0: none)", i+1, served[i], want[i])
		}
	}
}

// TestDirectoryCertificate: without files the handshake fails. New files are used without a restart. While the files are broken, the
// previous certificate stays in use.
func TestDirectoryCertificate(t *testing.T) {
	dir, logs := t.TempDir(), &lockedBuffer{}
	certificate := notifier.DirectoryCertificate(dir, slog.New(slog.NewTextHandler(logs, nil)))
	write := func(files map[string]string) {
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := newPair(t, 1), newPair(t, 2)
	// Changes of the files between two reads, in order, with the certificate that is served before each of them, and the number of
	// warnings so far.
	script := []struct {
		change           func()
		serial, warnings int
	}{
		{func() {}, 0, 1},
		{func() { write(first) }, 0, 1},
		{func() { write(second) }, 1, 1},
		{func() { write(map[string]string{"tls.key": "broken"}) }, 2, 1},
		{func() { write(second) }, 2, 2},
		{func() {}, 2, 2},
	}
	certificate.Run(context.Background(), func(_ context.Context, d time.Duration) error {
		if len(script) == 0 {
			return errors.New("the end")
		}
		step := script[0]
		script = script[1:]
		pair, err := certificate.Get(nil)
		if (err != nil) != (step.serial == 0) || err == nil && pair.Leaf.SerialNumber.Int64() != int64(step.serial) {
			t.Errorf("certificate %v, %v, want %d (0: none)", pair, err, step.serial)
		}
		if got := strings.Count(logs.String(), "level=WARN"); got != step.warnings || !strings.Contains(logs.String(), "pair in "+dir) {
			t.Errorf("%d warnings, want %d with the directory: %s", got, step.warnings, logs)
		}
		if d > 10*time.Second {
			t.Errorf("new files are used after %s", d)
		}
		step.change()
		return nil
	})
}

// TestCertificateErrorIsRepeated: the same error is logged at its first read and every 10 minutes, also while a certificate is in use.
func TestCertificateErrorIsRepeated(t *testing.T) {
	w, logs := newWorld(t, nil), &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	pair := newPair(t, 1)
	for name, certificate := range map[string]*notifier.Certificate{
		"broken Secret, a certificate in use": notifier.SecretCertificate(w.core.Secrets("system"), "serving", log),
		"no files":                            notifier.DirectoryCertificate(t.TempDir(), log),
	} {
		w.cluster.set("system/serving", pair)
		before, passed := strings.Count(logs.String(), "level=WARN"), time.Duration(0)
		certificate.Run(context.Background(), func(_ context.Context, d time.Duration) error {
			w.cluster.set("system/serving", map[string]string{"tls.crt": "broken"})
			if passed += d; passed > 41*time.Minute {
				return errors.New("the end")
			}
			return nil
		})
		if got := strings.Count(logs.String(), "level=WARN") - before; got < 4 || got > 5 {
			t.Errorf("%s: %d warnings in 40 minutes, want one every 10 minutes: %s", name, got, logs)
		}
	}
}

// TestDirectoryCertificateAtStart: files that exist at the start are in use before Run reads them.
func TestDirectoryCertificateAtStart(t *testing.T) {
	dir := t.TempDir()
	for name, content := range newPair(t, 1) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err := notifier.DirectoryCertificate(dir, slog.New(slog.DiscardHandler)).Get(nil); err != nil || pair.Leaf.SerialNumber.Int64() != 1 {
		t.Errorf("certificate %v, %v, want 1", pair, err)
	}
}

// newPair returns a self-signed certificate with a serial number.
func newPair(t *testing.T, serial int64) map[string]string {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	encode := func(kind string, bytesOf []byte) string {
		var b bytes.Buffer
		if err := pem.Encode(&b, &pem.Block{Type: kind, Bytes: bytesOf}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	return map[string]string{
		"tls.crt": encode("CERTIFICATE", der), "tls.key": encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))),
	}
}
