package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// disclosable is how long a fuzzed secret has to be so that it does not occur by chance in a text of this package.
const disclosable = 12

// FuzzParseCredentials: a pull secret gives complete credentials for canonical hosts, the same ones in both formats. Each is used only for
// repositories of its host and below its path, and neither the log nor a formatted credential discloses it.
func FuzzParseCredentials(f *testing.F) {
	auth := base64.StdEncoding.EncodeToString([]byte("robot:p4ssw0rd-of-the-robot"))
	for _, seed := range []string{
		`{"registry.example.com":{"auth":"` + auth + `"}}`,
		`{"https://index.docker.io/v1/":{"username":"u","password":"p4ssw0rd-of-u"},"*.example.com:5000/team":{"identitytoken":"an-identity-token"}}`,
		`{"https://user:p4ssw0rd-in-a-url@Registry.Example.com/v2/team/":{"registrytoken":"a-registry-token"}}`,
		`{"a":{"auth":"%%%"},"":{},"b":null}`, `[]`, `null`, `{`,
	} {
		f.Add([]byte(seed), "registry.example.com/team/app:1")
	}
	f.Add([]byte(`{"docker.io":{"auth":"`+auth+`"}}`), "nginx")
	f.Fuzz(func(t *testing.T, auths []byte, reference string) {
		var log bytes.Buffer
		parse := func(key string, config []byte) Credentials {
			return ParseCredentials(map[string]map[string][]byte{"pull": {key: config}}, slog.New(slog.NewTextHandler(&log, nil)))
		}
		parsed := parse(".dockerconfigjson", slices.Concat([]byte(`{"auths":`), auths, []byte(`}`)))
		if older := parse(".dockercfg", auths); json.Valid(auths) && (!reflect.DeepEqual(parsed.entries, older.entries) || len(parsed.unusable) != len(older.unusable)) {
			t.Errorf("%s: %d credentials, but %d from .dockercfg", auths, len(parsed.entries), len(older.entries))
		}
		for _, c := range parsed.entries {
			if c.host == "" || c.host != workerapi.CanonicalHost(c.host) || strings.Contains(c.host, "@") || !complete(c.auth) {
				t.Errorf("%s: a credential for the host %q, complete: %v", auths, c.host, complete(c.auth))
			}
		}
		texts := log.String() + fmt.Sprintf("%v %+v %#v", parsed, parsed, parsed.entries)
		for _, secret := range parsed.secretValues() {
			if len(secret) >= disclosable && strings.Contains(texts, secret) && !strings.Contains(fmt.Sprint(parsed.entries), secret) {
				t.Errorf("%s: %q is disclosed in %s", auths, secret, texts)
			}
		}
		ref, err := name.ParseReference(reference)
		if err != nil {
			return
		}
		longest := math.MaxInt
		for _, c := range parsed.For(ref.Context()) {
			host, repository := strings.ToLower(ref.Context().RegistryStr()), ref.Context().RepositoryStr()
			// A wildcard fits several hosts. Like the kubelet, For also reads a host with an empty port, or with what else can follow in a URL.
			named := strings.TrimSuffix(c.host, ":")
			if !strings.ContainsAny(c.host, `*?[\#%`) && named != host && named != workerapi.CanonicalHost(host) {
				t.Errorf("%s: the credential for %q is used for %s", auths, c.host, host)
			}
			if c.path != "" && !strings.HasPrefix(repository+"/", c.path+"/") {
				t.Errorf("%s: the credential for %q is used for %s", auths, c.path, repository)
			}
			if len(c.path) > longest {
				t.Errorf("%s: the credential for %q comes after one for a shorter path", auths, c.path)
			}
			longest = len(c.path)
		}
	})
}

// FuzzRedact: no secret is left in a text, whether or not one is part of another.
func FuzzRedact(f *testing.F) {
	f.Add("the password s3cret-and-more", "s3cret", "s3cret-and-more")
	f.Add("aaaa", "a", "aa")
	f.Fuzz(func(t *testing.T, text, first, second string) {
		const mark = "…"
		for _, given := range []string{text, first, second} {
			if !utf8.ValidString(given) || strings.Contains(given, mark) {
				t.Skip("a part of the mark could complete a secret")
			}
		}
		redacted := redact(text, []string{first, second})
		for _, secret := range []string{first, second} {
			if secret != "" && strings.Contains(redacted, secret) {
				t.Errorf("without %q and %q, %q becomes %q", first, second, text, redacted)
			}
		}
	})
}

// foreignRegistry is a registry with its token server, whose answers are fuzzed. Its documents refer to each other.
type foreignRegistry struct {
	challenge, contentType, retryAfter, token string
	status                                    int
	documents                                 [][]byte
	requests                                  int
}

const foreignHost = "registry.example.com"

// RoundTrip implements http.RoundTripper.
func (g *foreignRegistry) RoundTrip(r *http.Request) (*http.Response, error) {
	g.requests++
	answer := func(status int, header http.Header, body []byte) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	switch {
	case r.URL.Host != foreignHost:
		return answer(http.StatusOK, http.Header{}, []byte(g.token))
	case r.URL.Path == "/v2/" && g.challenge != "" && r.Header.Get("Authorization") == "":
		return answer(http.StatusUnauthorized, http.Header{"Www-Authenticate": {g.challenge}}, nil)
	case r.URL.Path == "/v2/":
		return answer(http.StatusOK, http.Header{}, nil)
	case g.status != http.StatusOK:
		return answer(g.status, http.Header{"Retry-After": {g.retryAfter}, "Content-Type": {g.contentType}}, g.documents[0])
	case strings.Contains(r.URL.Path, "/referrers/"):
		return answer(http.StatusOK, http.Header{"Content-Type": {g.contentType}}, g.documents[0])
	}
	for n, found := range g.documents {
		if wanted := path.Base(r.URL.Path); wanted == document.Digest(found).String() || n == 0 && !strings.HasPrefix(wanted, "sha256:") {
			return answer(http.StatusOK, http.Header{"Content-Type": {g.contentType}}, found)
		}
	}
	return answer(http.StatusNotFound, http.Header{}, []byte(`{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`))
}

// maxRequests bounds what a pull asks a registry for: each document twice, for a credential and without one, beside the challenges, the tokens and the
// redirects.
const maxRequests = 100

// pullReasons are the reasons of a pull that fails.
var pullReasons = []string{
	workerapi.ReasonImageNotFound, workerapi.ReasonUnauthorized, workerapi.ReasonPullSecretMissing, workerapi.ReasonPlatformMismatch, workerapi.ReasonNotAnImage,
	workerapi.ReasonForeignLayer, workerapi.ReasonRegistryThrottled, workerapi.ReasonRegistryUnavail, workerapi.ReasonCatalogFailed,
}

// FuzzPull: whatever a registry and its token server answer, a pull ends with an image that the manager accepts as that of the requested digest
// (document.Verify), or with a failure that has a reason, a bounded wait and no secret in it.
func FuzzPull(f *testing.F) {
	const (
		config   = `{"os":"linux","architecture":"amd64"}`
		index    = `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"@1","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}`
		password = "p4ssw0rd-of-the-robot"
		bearer   = `Bearer realm="https://auth.example.com/token",service="x"`
		indexes  = "application/vnd.oci.image.index.v1+json"
		images   = "application/vnd.oci.image.manifest.v1+json"
	)
	manifestOf := func(mediaType, config, digest string) string {
		return fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"digest":"sha256:%064d","size":7}]}`, mediaType, digest, len(config), 1)
	}
	const configs = "application/vnd.oci.image.config.v1+json"
	manifest, alone, quoting := manifestOf(configs, config, "@2"), manifestOf(configs, config, "@1"), manifestOf(password, "{}", "@1")
	polyglot := strings.Replace(alone, `"layers"`, `"manifests":[],"layers"`, 1)
	for _, locate := range []bool{false, true} {
		f.Add([]byte(index+"\n---\n"+manifest+"\n---\n"+config), uint16(200), indexes, "", "", "", locate)
		f.Add([]byte(alone+"\n---\n"+config), uint16(200), images, bearer, `{"token":"a-token-of-the-server"}`, "", locate)
		f.Add([]byte(polyglot+"\n---\n"+config), uint16(200), images, "", "", "", locate)
	}
	f.Add([]byte(quoting+"\n---\n{}"), uint16(200), images, "", "", "", false)
	f.Add([]byte(`{"errors":[{"code":"DENIED","message":"not with `+password+`"}]}`), uint16(403), "application/json", `Basic realm="x"`, "", "", false)
	f.Add([]byte("slow down"), uint16(429), "text/plain", "", "", "99999999999", false)
	f.Add([]byte("<html>"), uint16(200), "text/html", bearer, `{"refresh_token":"another-secret"}`, "", false)
	credentials := ParseCredentials(map[string]map[string][]byte{
		"pull": {".dockerconfigjson": []byte(`{"auths":{"` + foreignHost + `":{"username":"robot","password":"` + password + `"}}}`)},
	}, slog.New(slog.DiscardHandler))
	secrets := []string{password, base64.StdEncoding.EncodeToString([]byte("robot:" + password))}
	platform := v1.Platform{OS: "linux", Architecture: "amd64"}
	f.Fuzz(func(t *testing.T, text []byte, status uint16, contentType, challenge, token, retryAfter string, locate bool) {
		g := &foreignRegistry{
			challenge: challenge, contentType: contentType, retryAfter: retryAfter, token: token, status: int(status), documents: registrytest.Linked(text),
		}
		if g.documents == nil || g.status < 200 || g.status > 599 || slices.Contains(retriedStatusCodes, g.status) {
			t.Skip("there are too many documents, no server answers so, or the client library would wait and try again")
		}
		var log bytes.Buffer
		p := &Puller{
			Credentials: credentials, Transport: g, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return time.Unix(1_800_000_000, 0) },
		}
		references := []string{foreignHost + "/team/app:1"}
		image, err := p.Pull(t.Context(), references, platform)
		if err == nil && locate {
			err = checkLocation(t, p, references, platform)
		}
		if g.requests > maxRequests {
			t.Errorf("the registry got %d requests", g.requests)
		}
		if err == nil {
			if verified, err := document.Verify(image.Root, platform, image.Documents); err != nil || verified != image.Digest || image.Root != document.Digest(g.documents[0]) {
				t.Errorf("the image %s of %s was pulled, but its documents lead to %s, %v", image.Digest, image.Root, verified, err)
			}
			return
		}
		requireReason(t, err)
		for _, secret := range secrets {
			if strings.Contains(err.Error()+log.String(), secret) {
				t.Errorf("%q is disclosed: %v\n%s", secret, err, &log)
			}
		}
	})
}

// requireReason fails the test unless an error is a failure of a pull, with a bounded wait if a registry throttles.
func requireReason(t *testing.T, err error) {
	t.Helper()
	var failed *failure.Error
	if !errors.As(err, &failed) || !slices.Contains(pullReasons, failed.Reason) {
		t.Fatalf("the error has no reason: %v", err)
	}
	if failed.RetryAfter < 0 || failed.RetryAfter > maxRetryAfter || (failed.Registry != "") != (failed.Reason == workerapi.ReasonRegistryThrottled) {
		t.Errorf("%s: a wait of %s for %q", failed.Reason, failed.RetryAfter, failed.Registry)
	}
}

// FuzzAttachments: whatever a registry answers about what is attached to an image, it is the content of the digest that was asked for, of bounded length, or a
// failure that has a reason and a bounded wait.
func FuzzAttachments(f *testing.F) {
	const (
		password = "p4ssw0rd-of-the-robot"
		config   = `{"os":"linux","architecture":"amd64"}`
		indexes  = "application/vnd.oci.image.index.v1+json"
		list     = `{"schemaVersion":2,"mediaType":"` + indexes + `","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"@1","size":1,"artifactType":"application/vnd.dev.sigstore.bundle.v0.3+json"}]}`
		manifest = `{"schemaVersion":2,"config":{"digest":"@2","size":2},"layers":[{"mediaType":"x","digest":"@2","size":2}],"annotations":{"a":"b"}}`
		limit    = 1 << 10
	)
	f.Add([]byte(list+"\n---\n"+manifest+"\n---\n{}"), uint16(200), indexes, "")
	f.Add([]byte(strings.Replace(list, "@1", "sha256:"+strings.Repeat("0", 64), 1)), uint16(200), indexes, "")
	f.Add([]byte(strings.Replace(manifest, `"size":2`, `"size":-1`, 2)+"\n---\n{}"), uint16(200), "", "")
	f.Add([]byte(list+"\n---\n"+manifest+"\n---\n"+strings.Repeat("x", 2*limit)), uint16(200), indexes, "")
	f.Add([]byte(`{"manifests":[{"digest":""},{"digest":"md5:0"},null]}`), uint16(200), indexes, "")
	f.Add([]byte(`{"errors":[{"code":"TOOMANYREQUESTS","message":"`+password+`"}]}`), uint16(429), "application/json", "99999999999")
	f.Add([]byte("<html>"), uint16(404), "text/html", "")
	credentials := ParseCredentials(map[string]map[string][]byte{
		"pull": {".dockerconfigjson": []byte(`{"auths":{"` + foreignHost + `":{"username":"robot","password":"` + password + `"}}}`)},
	}, slog.New(slog.DiscardHandler))
	own := registrytest.Linked(fmt.Appendf(nil, `{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"@1","size":%d},"layers":[]}`+"\n---\n%s", len(config), config))
	f.Fuzz(func(t *testing.T, text []byte, status uint16, contentType, retryAfter string) {
		documents := registrytest.Linked(text)
		if documents == nil || status < 200 || status > 599 || slices.Contains(retriedStatusCodes, int(status)) {
			return // there are too many documents, no server answers so, or the client library would wait and try again
		}
		g := &foreignRegistry{contentType: "application/vnd.oci.image.manifest.v1+json", status: http.StatusOK, documents: own}
		p := &Puller{Credentials: credentials, Transport: g, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
		image, err := p.Pull(t.Context(), []string{foreignHost + "/team/app:1"}, v1.Platform{OS: "linux", Architecture: "amd64"})
		if err != nil {
			t.Fatal(err)
		}
		g.contentType, g.status, g.retryAfter, g.documents, g.requests = contentType, int(status), retryAfter, documents, 0
		from, err := p.Attachments(t.Context(), image)
		if err != nil {
			t.Fatal(err)
		}
		// failed reports whether there is an error, which must be one for people.
		failed := func(err error) bool {
			if err == nil || errors.Is(err, ErrAttachmentTooLarge) {
				return err != nil
			}
			requireReason(t, err)
			if strings.Contains(err.Error(), password) {
				t.Errorf("the password is disclosed: %v", err)
			}
			return true
		}
		has := func(digest v1.Hash) bool {
			return slices.ContainsFunc(documents, func(found []byte) bool { return document.Digest(found) == digest })
		}
		referrers, _, err := from.Referrers(image.Digest)
		failed(err)
		if tagged, err := from.Tagged(t.Context(), "sha256-0.att"); !failed(err) && tagged == nil && status == http.StatusOK {
			t.Errorf("%q is taken for a missing tag", text)
		}
		for _, referrer := range referrers[:min(len(referrers), 3)] {
			manifest, err := from.Manifest(t.Context(), referrer.Digest)
			if failed(err) || manifest == nil {
				continue
			}
			if !has(referrer.Digest) {
				t.Errorf("%s is taken for the manifest of %s", text, referrer.Digest)
			}
			for _, layer := range manifest.Layers[:min(len(manifest.Layers), 3)] {
				if raw, err := from.Blob(t.Context(), layer, limit); !failed(err) && (len(raw) > limit || document.Digest(raw) != layer.Digest) {
					t.Errorf("%q is taken for the blob of %s", raw, layer.Digest)
				}
			}
		}
		if g.requests > maxRequests {
			t.Errorf("the registry got %d requests", g.requests)
		}
	})
}

// checkLocation locates the layers of an image. They are only in its own repository.
func checkLocation(t *testing.T, p *Puller, references []string, platform v1.Platform) error {
	t.Helper()
	location, err := p.Locate(t.Context(), references, platform)
	if err != nil {
		return err
	}
	for _, layer := range location.Layers {
		if want := "https://" + foreignHost + "/v2/team/app/blobs/" + layer.Digest.String(); layer.URL != want || layer.Size <= 0 {
			t.Errorf("a layer of %d bytes at %q, want %q", layer.Size, layer.URL, want)
		}
	}
	return nil
}
