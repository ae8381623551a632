package api

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/quay/claircore"
)

// FuzzAnswers: any answer of Clair is refused, or contains no nil where callers do not expect one.
func FuzzAnswers(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal("no recordings", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(content, []byte("\n\n"))
		f.Add(body)
	}
	f.Add([]byte(`{"packages":{"1":null},"environments":{"1":[null]}}`))
	client, err := New(Options{URL: "http://clair"})
	if err != nil {
		f.Fatal(err)
	}
	digest := claircore.MustParseDigest("sha256:93202d35d2bacc8d2fd5b01a823b0b2e5a5b82aaa9b4423a805aadd3fdbc6448")
	f.Fuzz(func(t *testing.T, body []byte) {
		got := &answer{status: http.StatusOK, header: http.Header{}, body: body}
		if report, err := client.decodeIndexReport(got, digest); err == nil {
			report.IndexRecords()
			_ = client.Failure(report, claircore.Manifest{})
		}
		if report, err := client.vulnerabilityReport(got, digest); err == nil {
			for _, vulnerability := range report.Vulnerabilities {
				_ = vulnerability.Name
			}
			for _, environments := range report.Environments {
				for _, environment := range environments {
					_ = environment.IntroducedIn
				}
			}
		}
		if updates, err := client.updates(got); err == nil && updates.Latest == nil {
			t.Error("no updates, and no error")
		}
		var page notificationPage
		if err := client.decode(got, &page); err == nil && page.check() == nil {
			for _, notification := range page.Notifications {
				if notification.Manifest.String() == "" || notification.Reason == "" {
					t.Errorf("%s is taken for a page of notifications, with %+v", body, notification)
				}
			}
		}
		client.http.Transport = failingServer(body)
		_, err := client.do(t.Context(), call{method: http.MethodPost})
		if text := err.Error(); len(text) > 2*maxMessageBytes || !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00") {
			t.Errorf("not one bounded line: %q", text)
		}
	})
}

// failingServer answers every request with status 500 and this body.
type failingServer []byte

// RoundTrip implements http.RoundTripper.
func (s failingServer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(bytes.NewReader(s))}, nil
}

// FuzzWebhook: a webhook is refused, or it names a notification by a UUID, whose text can be part of a URL.
func FuzzWebhook(f *testing.F) {
	const id = "368084e0-418d-41b1-8f3a-906bf4dc51e2"
	for _, seed := range []string{
		`{"notification_id":"` + id + `","callback":"http://evil.example.com/"}`, `{"notification_id":"` + strings.ToUpper(id) + `"}`, `{"notification_id":"{` + id + `}"}`,
		`{"notification_id":"urn:uuid:` + id + `"}`, `{"notification_id":"../` + id + `"}`, `{"notification_id":1}`, `[]`, `{}{}`, "", strings.Repeat(" ", maxWebhookBytes) + "{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		parsed, err := ParseWebhook(bytes.NewReader(body))
		if err != nil {
			const maxText = 128
			if parsed != uuid.Nil || len(err.Error()) > maxText {
				t.Errorf("%q gives %s beside the error %v", body, parsed, err)
			}
			return
		}
		again, err := ParseWebhook(strings.NewReader(`{"notification_id":"` + parsed.String() + `"}`))
		if err != nil || again != parsed || len(body) > maxWebhookBytes || !bytes.Contains(bytes.ToLower(body), []byte(parsed.String())) && !bytes.Contains(body, []byte(`\u`)) {
			t.Errorf("%q gives %s, and that %s, %v", body, parsed, again, err)
		}
	})
}

// FuzzVerifyToken: a token is accepted only if its signature is right by the definition of HMAC, and its claims name the issuer and an end that is not over.
func FuzzVerifyToken(f *testing.F) {
	key, now := bytes.Repeat([]byte("k"), minKeyBytes), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	valid, err := Auth{Key: key, Issuer: NotifierIssuer}.token(now)
	if err != nil {
		f.Fatal(err)
	}
	sign := func(header, claims string) string {
		encode := base64.RawURLEncoding.EncodeToString
		signed := encode([]byte(header)) + "." + encode([]byte(claims))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(signed))
		return signed + "." + encode(mac.Sum(nil))
	}
	for _, seed := range []string{
		valid, valid[:len(valid)-1], valid + "=", strings.ReplaceAll(valid, ".", ".."), sign(`{"alg":"none"}`, `{"iss":"clair-notifier","exp":9999999999}`),
		sign(`{"alg":"HS256"}`, `{"iss":"clair-notifier"}`), sign(`{"alg":"HS256"}`, `{"iss":"other","exp":9999999999}`), sign(`{"alg":"HS256"}`, `{"iss":"clair-notifier","exp":9999999999}`), "..", "",
	} {
		f.Add(seed)
	}
	// Go's own fuzzer cannot find a signature, so it also changes what is signed.
	f.Fuzz(func(t *testing.T, text string) {
		for _, token := range []string{text, sign(`{"alg":"HS256"}`, text)} {
			if VerifyToken(token, key, []string{NotifierIssuer}, now) != nil {
				continue
			}
			parts := strings.Split(token, ".")
			if len(parts) != 3 {
				t.Fatalf("%q is accepted, but it has %d parts", token, len(parts))
			}
			var decodedParts [3][]byte
			for i, part := range parts {
				var err error
				if decodedParts[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
					t.Fatalf("%q is accepted, but part %d is no base64: %v", token, i, err)
				}
			}
			// The last character of base64 has bits without a meaning. What is signed has none of them set.
			header, claims, signature := decodedParts[0], decodedParts[1], decodedParts[2]
			if want := sign(string(header), string(claims)); want[strings.LastIndex(want, ".")+1:] != base64.RawURLEncoding.EncodeToString(signature) {
				t.Fatalf("%q is accepted, but its signature is not that of the key", token)
			}
			var decoded map[string]any
			err := json.Unmarshal(claims, &decoded)
			if expiry, isNumber := decoded["exp"].(float64); err != nil || decoded["iss"] != NotifierIssuer || !isNumber || expiry < float64(now.Add(-tokenLeeway).Unix()) {
				t.Errorf("%q is accepted with the claims %s, %v", token, claims, err)
			}
		}
	})
}

// FuzzCanonicalURL: an address is refused, or it has one spelling, which leads to the same server and has no credentials. The reason for a refusal never
// names a password.
func FuzzCanonicalURL(f *testing.F) {
	for _, seed := range []string{
		"http://clair.example.com:6060", "HTTPS://Clair.Example.com:443/", "http://[::1]:80/clair/", "https://user:hunter2@clair", "http://clair/a/../b", "http://clair/%2e%2e", "http://0x7f.1", "http://clair?x", "http://clair#", "http://clair:065535",
		"http://[fe80::1%25eth0]/", "http://[::ffff:10.0.0.1]", "//clair", "clair:6060", "http://clair//", "http://cläir",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if _, err := CanonicalURL("https://user:hunter2@" + address); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q with a password is refused with %v", address, err)
		}
		canonical, err := CanonicalURL(address)
		if err != nil {
			return
		}
		if again, err := CanonicalURL(canonical); err != nil || again != canonical {
			t.Errorf("%q becomes %q, and that %q, %v", address, canonical, again, err)
		}
		given, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := url.Parse(canonical)
		if err != nil {
			t.Fatal(err)
		}
		defaultPort := map[string]string{"http": "80", "https": "443"}[parsed.Scheme]
		port := func(u *url.URL) string { return strings.TrimLeft(cmp.Or(u.Port(), defaultPort), "0") }
		if parsed.User != nil || parsed.RawQuery != "" || parsed.Scheme != given.Scheme || port(parsed) != port(given) || parsed.Path != strings.TrimSuffix(given.Path, "/") {
			t.Errorf("%q becomes %q", address, canonical)
		}
		was, wasErr := netip.ParseAddr(given.Hostname())
		is, isErr := netip.ParseAddr(parsed.Hostname())
		if (wasErr == nil) != (isErr == nil) || was != is || isErr != nil && !strings.EqualFold(given.Hostname(), parsed.Hostname()) {
			t.Errorf("%q becomes %q, which is another host", address, canonical)
		}
	})
}

// FuzzSanitize: a text by Clair or the network becomes one bounded line, without the secrets, without the user and the query of an address, and without
// the credential of a header.
func FuzzSanitize(f *testing.F) {
	for _, seed := range []string{
		"", `Get "https://user:hunter2@registry.example.com/v2/?token=abc#x": EOF`, "Authorization: Bearer eyJhbGciOiJ9.e30.c2ln", "basic%20dXNlcjpodW50ZXIy", "unexpected status code: 401 Unauthorized (body starts: \"hunter2\")",
		"a\nb\x00c\u202e", strings.Repeat("ü", maxMessageBytes), "https://%zz/", "x:y@z",
	} {
		f.Add(seed, "hunter2")
	}
	f.Fuzz(func(t *testing.T, text, secret string) {
		const marks = "[hidden] [address] $1 …"
		if strings.Contains(marks, secret) || !utf8.ValidString(secret) || secret != strings.Join(strings.Fields(secret), " ") {
			secret = "hunter2" // no header has such a credential, or the mark contains it
		}
		line := sanitize(text, []string{secret})
		switch {
		case len(line) > maxMessageBytes+len("…"), !utf8.ValidString(line), strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
			t.Errorf("%q becomes %q, which is not one bounded line", text, line)
		case credentials.MatchString(line):
			t.Errorf("%q becomes %q, which has the credential of a header", text, line)
		}
		for _, address := range addresses.FindAllString(line, -1) {
			if u, err := url.Parse(address); err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
				t.Errorf("%q becomes %q, which has more than scheme, host and path of %q", text, line, address)
			}
		}
		if strings.Contains(line, secret) {
			t.Errorf("%q becomes %q, which has the secret %q", text, line, secret)
		}
	})
}
