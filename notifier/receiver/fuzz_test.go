package receiver

import (
	"crypto/rsa"
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// FuzzCertificates: whatever a Secret holds, its certificates either can be used, or one of its keys is named, with nothing of a value.
func FuzzCertificates(f *testing.F) {
	server := httptest.NewTLSServer(nil)
	server.Close()
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	f.Add(certificate, "", "")
	f.Add(certificate+certificate, certificate, "-----BEGIN PRIVATE KEY-----\nMII=\n-----END PRIVATE KEY-----\n")
	f.Add("-----BEGIN CERTIFICATE-----\nA", "", "verysecret")
	f.Add("", "-----BEGIN X-----\nverysecret: 1\n\n-----END X-----\n", "verysecret")
	keys := []string{AuthoritiesKey, ClientCertificateKey, ClientKeyKey}
	f.Fuzz(func(t *testing.T, authorities, client, key string) {
		got, named, problem := ParseCertificates(map[string][]byte{AuthoritiesKey: []byte(authorities), ClientCertificateKey: []byte(client), ClientKeyKey: []byte(key)})
		if problem != "" {
			if !slices.Contains(keys, named) || len(problem) > 200 || strings.Contains(problem, "verysecret") {
				t.Errorf("the key %q %s", named, problem)
			}
			return
		}
		if named != "" || (len(got.Authorities) > 0) != (authorities != "") || (got.Client != nil) != (client != "") {
			t.Errorf("%q, %d authorities and the client certificate %v of %q, %q and %q", named, len(got.Authorities), got.Client != nil, authorities, client, key)
		}
		for _, authority := range got.Authorities {
			if public, isRSA := authority.PublicKey.(*rsa.PublicKey); isRSA && public.N.BitLen() > maxRSABits {
				t.Errorf("an RSA key of %d bits", public.N.BitLen())
			}
		}
		if config := (Network{}).TLS(got); config.MinVersion != tls.VersionTLS12 || config.InsecureSkipVerify || (Address{Certificates: got}).Key() == "" {
			t.Errorf("the settings %+v", config)
		}
	})
}
