package registry_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// mirrored is a registry with two mirrors. The requests to each of them are recorded.
type mirrored struct {
	registry, first, second *registrytest.Registry
	recorders               map[string]*recorder
	image                   v1.Image
	// reference of the image, by digest.
	reference string
}

// newMirrored pushes the image to the registry and to both mirrors, in the second below hub/. If broken is not nil, it answers
// in place of the first mirror.
func newMirrored(t *testing.T, broken http.HandlerFunc) *mirrored {
	t.Helper()
	m := &mirrored{image: registrytest.Image(t, registrytest.Files{"a": "b"}), recorders: map[string]*recorder{"registry": {}, "first": {}, "second": {}}}
	filled := false
	m.registry = registrytest.NewRegistry(t, m.recorders["registry"].wrap)
	m.first = registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return m.recorders["first"].wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if filled && broken != nil {
				broken(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}))
	})
	m.second = registrytest.NewRegistry(t, m.recorders["second"].wrap)
	m.reference = m.registry.Push(t, "team/app:1", m.image)
	m.reference = strings.TrimSuffix(m.reference, ":1") + "@" + registrytest.Digest(t, m.image)
	m.first.Push(t, "team/app:1", m.image)
	m.second.Push(t, "hub/team/app:1", m.image)
	filled = true
	for _, r := range m.recorders {
		r.requests = 0
	}
	return m
}

// puller returns a Puller with both mirrors configured.
func (m *mirrored) puller() *registry.Puller {
	p := puller(m.first.Host, m.second.Host)
	p.Registries = append(p.Registries, workerapi.Registry{Host: m.registry.Host, PlainHTTP: true, Mirrors: []string{m.first.Host, m.second.Host + "/hub"}})
	return p
}

// requestedRegistries returns the names of those that received a request.
func (m *mirrored) requestedRegistries() string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(m.recorders)), func(name string) bool { return m.recorders[name].requests == 0 }), " ")
}

func answerStatus(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// TestMirrors checks that the registry itself gets no request while a mirror has the image, and that any failure of a mirror leads to
// the next one.
func TestMirrors(t *testing.T) {
	other := registrytest.Image(t, registrytest.Files{"c": "d"})
	otherManifest, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		broken http.HandlerFunc
		asked  string
	}{
		"the first has it":        {nil, "first"},
		"the first has it not":    {answerStatus(http.StatusNotFound), "first second"},
		"the first refuses":       {answerStatus(http.StatusForbidden), "first second"},
		"the first throttles":     {answerStatus(http.StatusTooManyRequests), "first second"},
		"the first is in trouble": {answerStatus(http.StatusBadGateway), "first second"},
		"the first talks nonsense": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>")
		}, "first second"},
		"the first has another image by that digest": {func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
				_, _ = w.Write(otherManifest)
			}
		}, "first second"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMirrored(t, c.broken)
			img, err := m.puller().Pull(t.Context(), []string{m.reference}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			drain(t, img.Content)
			if m.requestedRegistries() != c.asked {
				t.Errorf("%s were asked, want %s", m.requestedRegistries(), c.asked)
			}
			if img.Reference.String() != m.reference || img.Digest.String() != registrytest.Digest(t, m.image) {
				t.Errorf("got %s with digest %s, want what was asked for: %s", img.Reference, img.Digest, m.reference)
			}
		})
	}
}

// TestUnreachableMirrors checks that an unreachable mirror counts as failed. If all mirrors fail, the registry decides, and the message
// names the mirrors.
func TestUnreachableMirrors(t *testing.T) {
	m := newMirrored(t, nil)
	p := m.puller()
	p.Registries[2].Mirrors = []string{"127.0.0.1:1", m.second.Host + "/nowhere"}
	img, err := p.Pull(t.Context(), []string{m.reference}, amd64)
	if err != nil || img.Mirror != "" || m.requestedRegistries() != "registry second" {
		t.Errorf("got %+v and %v from %s, want the image from the registry", img, err, m.requestedRegistries())
	}
	gone := m.registry.Host + "/team/gone@" + registrytest.Digest(t, m.image)
	_, err = p.Pull(t.Context(), []string{gone}, amd64)
	want := fmt.Sprintf("mirrors failed: 127.0.0.1:1 (RegistryUnavailable), %s/nowhere (ImageNotFound)", m.second.Host)
	if got := reason(err); got != workerapi.ReasonImageNotFound || !strings.Contains(err.Error(), want) {
		t.Errorf("got %s (%v), want the registry's own ImageNotFound and %q", got, err, want)
	}
}

// TestMirrorsServeDigestsOnly checks that no mirror gets a request for a tag, since only the registry decides what a tag refers to.
func TestMirrorsServeDigestsOnly(t *testing.T) {
	m := newMirrored(t, nil)
	if _, err := m.puller().Pull(t.Context(), []string{m.registry.Host + "/team/app:1"}, amd64); err != nil || m.requestedRegistries() != "registry" {
		t.Errorf("error %v, and %s were asked, want the registry only", err, m.requestedRegistries())
	}
}

// TestCredentialsOfMirrors checks that the registry and each mirror get only their own credentials.
func TestCredentialsOfMirrors(t *testing.T) {
	m := newMirrored(t, requireUser("for-first")(answerStatus(http.StatusNotFound)).ServeHTTP)
	p := m.puller()
	p.Registries[2].Mirrors = []string{m.first.Host}
	withCredentials(t, p, map[string]string{m.registry.Host: "for-registry", m.first.Host: "for-first", m.second.Host: "for-second"})
	if _, err := p.Pull(t.Context(), []string{m.reference}, amd64); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(m.recorders["first"].authorizations)); !slices.Equal(got, []string{"for-first"}) {
		t.Errorf("the mirror got credentials of %q, want its own only", got)
	}
	for user := range m.recorders["registry"].authorizations {
		if user != "for-registry" {
			t.Errorf("the registry got the credentials of %q", user)
		}
	}
}

// TestMirrorWithoutLayers checks that a mirror with the manifest but without the layers is not used again.
func TestMirrorWithoutLayers(t *testing.T) {
	m := newMirrored(t, nil)
	p := m.puller()
	img, err := p.Pull(t.Context(), []string{m.reference}, amd64)
	if err != nil || img.Mirror != m.first.Host {
		t.Fatalf("got %+v and %v, want the image from the first mirror", img, err)
	}
	for _, why := range []string{workerapi.ReasonCatalogFailed, workerapi.ReasonNotAnImage} {
		if p.ExcludeMirror(img, failure.New(why, http.ErrBodyNotAllowed)) {
			t.Errorf("after %s the image is pulled again, and would fail again", why)
		}
	}
	for _, mirror := range []string{m.second.Host + "/hub", ""} {
		if !p.ExcludeMirror(img, failure.New(workerapi.ReasonImageNotFound, http.ErrMissingFile)) {
			t.Fatalf("after %q failed there is no other source", img.Mirror)
		}
		if img, err = p.Pull(t.Context(), []string{m.reference}, amd64); err != nil || img.Mirror != mirror {
			t.Fatalf("got %+v and %v, want the image from %q", img, err, mirror)
		}
	}
	if p.ExcludeMirror(img, failure.New(workerapi.ReasonImageNotFound, http.ErrMissingFile)) {
		t.Error("the registry itself is avoided")
	}
}

// TestDockerHub checks that Docker Hub is one registry under all its names: for mirrors, for credentials, and for plain HTTP.
func TestDockerHub(t *testing.T) {
	hub, mirror := registrytest.NewRegistry(t, nil), registrytest.NewRegistry(t, nil)
	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	hub.Push(t, "library/app:1", image)
	mirror.Push(t, "hub/library/app:1", image)
	var users []string
	network := transportFunc(func(r *http.Request) (*http.Response, error) {
		redirected := r.Clone(r.Context())
		switch {
		case r.URL.Scheme == "https":
			return nil, http.ErrSchemeMismatch // so that only plainHTTP allows the request
		case strings.HasSuffix(r.URL.Host, "docker.io"):
			redirected.URL.Host = hub.Host
			if user, _, _ := r.BasicAuth(); user == "" {
				return refuseAll(r)
			}
		}
		user, _, _ := r.BasicAuth()
		users = append(users, user)
		return http.DefaultTransport.RoundTrip(redirected)
	})
	for _, host := range []string{"docker.io", "index.docker.io", "registry-1.docker.io"} {
		for _, key := range []string{"https://index.docker.io/v1/", "https://index.docker.io/v1", "index.docker.io/v1/", "docker.io", "https://docker.io", "index.docker.io", "registry-1.docker.io", "https://registry-1.docker.io/v2/", "registry.hub.docker.com"} {
			users = nil
			p := &registry.Puller{Registries: []workerapi.Registry{{Host: host, PlainHTTP: true}}, Transport: network, Log: puller().Log, Now: puller().Now}
			withCredentials(t, p, map[string]string{key: "hub-user"})
			_, err := p.Pull(t.Context(), []string{"docker.io/library/app@" + registrytest.Digest(t, image)}, amd64)
			if err != nil || !slices.Contains(users, "hub-user") {
				t.Errorf("plain HTTP for %s, credentials for %s: got %v", host, key, err)
			}
		}
		p := &registry.Puller{
			Registries: []workerapi.Registry{{Host: host, Mirrors: []string{mirror.Host + "/hub"}}, {Host: mirror.Host, PlainHTTP: true}},
			Log:        puller().Log, Now: puller().Now,
		}
		img, err := p.Pull(t.Context(), []string{"docker.io/library/app@" + registrytest.Digest(t, image)}, amd64)
		if err != nil || img.Mirror != mirror.Host+"/hub" {
			t.Errorf("mirror of %s: got %+v and %v", host, img, err)
		}
	}
}

// TestThrottledRegistryGetsNoRequests checks that a throttling registry gets no requests, unlike its mirrors and other registries.
func TestThrottledRegistryGetsNoRequests(t *testing.T) {
	m := newMirrored(t, nil)
	alone := puller(m.registry.Host, m.second.Host)
	for what, c := range map[string]struct {
		puller     *registry.Puller
		references []string
		want       string // reason; empty: the image is there
	}{
		"with a mirror":           {m.puller(), []string{m.reference}, ""},
		"without a mirror":        {alone, []string{m.reference}, workerapi.ReasonRegistryThrottled},
		"with another registry":   {alone, []string{m.reference, m.second.Host + "/hub/team/app:1"}, ""},
		"before another registry": {alone, []string{m.second.Host + "/hub/gone:1", m.reference}, workerapi.ReasonRegistryThrottled},
	} {
		t.Run(what, func(t *testing.T) {
			c.puller.ThrottledHosts = []string{m.registry.Host}
			_, err := c.puller.Pull(t.Context(), c.references, amd64)
			if m.recorders["registry"].requests > 0 {
				t.Errorf("the registry was asked %d times", m.recorders["registry"].requests)
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			described := failure.Describe(err, "none")
			if described.Reason != c.want || described.Registry != m.registry.Host || described.RetryAfterSeconds != 0 {
				t.Errorf("failure %+v, want %s of %s without a time of its own", described, c.want, m.registry.Host)
			}
		})
	}
}

// TestThrottledMirrorGetsNoRequests checks that a throttling host gets no requests as a mirror, either.
func TestThrottledMirrorGetsNoRequests(t *testing.T) {
	m := newMirrored(t, nil)
	p := m.puller()
	p.ThrottledHosts = []string{m.first.Host}
	if _, err := p.Pull(t.Context(), []string{m.reference}, amd64); err != nil || m.requestedRegistries() != "second" {
		t.Errorf("error %v, and %s were asked, want the second mirror only", err, m.requestedRegistries())
	}
}

// TestThrottlingMirrorIsExcluded checks that a throttling mirror gets requests in the first pull of a Puller only.
func TestThrottlingMirrorIsExcluded(t *testing.T) {
	m := newMirrored(t, answerStatus(http.StatusTooManyRequests))
	p := m.puller()
	var requests [2]int
	for i := range requests {
		if _, err := p.Pull(t.Context(), []string{m.reference}, amd64); err != nil {
			t.Fatal(err)
		}
		requests[i] = m.recorders["first"].requests
	}
	if requests[0] == 0 || requests[1] != requests[0] {
		t.Errorf("the mirror was asked %d times, and then %d times more, want no more", requests[0], requests[1]-requests[0])
	}
}

// TestThrottlingRegistries checks that a 429 leads to the next reference. If there is none, the failure names the registry as references
// do, even if it occurs while layers are read.
func TestThrottlingRegistries(t *testing.T) {
	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	throttling := ""
	limited := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if throttling != "" && strings.Contains(r.URL.Path, throttling) {
				w.Header().Set("Retry-After", "90")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	calm := registrytest.NewRegistry(t, nil)
	reference, second := limited.Push(t, "app:1", image), calm.Push(t, "app:1", image)
	want := workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 90, Registry: limited.Host}

	p := puller(limited.Host, calm.Host)
	img, err := p.Pull(t.Context(), []string{reference}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	throttling = "/blobs/"
	_, err = readLayer(t, img.Content)
	if described := failure.Describe(err, "none"); described.Reason != want.Reason || described.RetryAfterSeconds != 90 || described.Registry != want.Registry {
		t.Errorf("a layer: failure %+v, want %+v", described, want)
	}
	throttling = "/"
	if _, err := p.Pull(t.Context(), []string{reference, second}, amd64); err != nil {
		t.Errorf("another registry has the image, and the pull failed: %v", err)
	}
	for _, references := range [][]string{{reference, calm.Host + "/gone:1"}, {calm.Host + "/gone:1", reference}} {
		_, err := p.Pull(t.Context(), references, amd64)
		if described := failure.Describe(err, "none"); described.Reason != want.Reason || described.RetryAfterSeconds != 90 || described.Registry != want.Registry {
			t.Errorf("%v: failure %+v, want %+v: it may have what the other has not", references, described, want)
		}
	}
}

// TestThrottlingRegistryIsNotRetried checks that a registry that sends 429 with DENIED gets no request with the next credential, nor an
// anonymous one.
func TestThrottlingRegistryIsNotRetried(t *testing.T) {
	manifests := 0
	server := registrytest.NewRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, named := r.BasicAuth(); !named {
				w.Header().Set("WWW-Authenticate", basicChallenge)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			manifests++
			w.Header().Set("Retry-After", "90")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"errors":[{"code":"DENIED","message":"quota exceeded"}]}`)
		})
	})
	p := puller(server.Host)
	withCredentials(t, p, map[string]string{server.Host: "one", server.Host + "/team": "two"})
	_, err := p.Pull(t.Context(), []string{server.Host + "/team/app:1"}, amd64)
	described := failure.Describe(err, "none")
	if described.Reason != workerapi.ReasonRegistryThrottled || described.RetryAfterSeconds != 90 || manifests != 1 {
		t.Errorf("failure %+v after %d requests, want %s for 90 seconds after one", described, manifests, workerapi.ReasonRegistryThrottled)
	}
}
