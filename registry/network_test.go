package registry_test

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	workerregistry "github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func copyBody(w io.Writer, response *http.Response) (int64, error) { return io.Copy(w, response.Body) }

// serveTLS serves an image as app:1 over TLS with the given certificate, and returns its host.
func serveTLS(t *testing.T, certificate tls.Certificate, image v1.Image, around func(http.Handler) http.Handler) string {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(handler)
	defer open.Close()
	(&registrytest.Registry{Host: strings.TrimPrefix(open.URL, "http://")}).Push(t, "app:1", image)
	server := httptest.NewUnstartedServer(around(handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

func unwrapped(next http.Handler) http.Handler { return next }

// TestPrivateAuthorities checks that a CA that is configured for a host is trusted for that host only, beside the system's CAs.
func TestPrivateAuthorities(t *testing.T) {
	private, image := selfSigned(), registrytest.Image(t, registrytest.Files{"a": "b"})
	storage := serveTLS(t, private, image, unwrapped)
	host := serveTLS(t, private, image, unwrapped)
	redirecting := serveTLS(t, private, image, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, "https://"+storage+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	public := serveTLS(t, systemAuthority, image, unwrapped)
	bundle := pemOf(private)
	for what, c := range map[string]struct {
		host       string
		registries []workerapi.Registry
		trusted    bool
	}{
		"the system's authority":                   {public, nil, true},
		"the system's, beside a configured one":    {public, []workerapi.Registry{{Host: public, CABundle: bundle}}, true},
		"a private one that is configured":         {host, []workerapi.Registry{{Host: host, CABundle: bundle}}, true},
		"a private one that nobody knows":          {host, nil, false},
		"a private one of another host":            {host, []workerapi.Registry{{Host: storage, CABundle: bundle}}, false},
		"a redirect to a host that has its own":    {redirecting, []workerapi.Registry{{Host: redirecting, CABundle: bundle}, {Host: storage, CABundle: bundle}}, true},
		"a redirect to a host that nobody vouches": {redirecting, []workerapi.Registry{{Host: redirecting, CABundle: bundle}}, false},
	} {
		t.Run(what, func(t *testing.T) {
			p := puller()
			p.Registries = c.registries
			_, err := p.Pull(t.Context(), []string{c.host + "/app:1"}, amd64)
			if c.trusted {
				if err != nil {
					t.Errorf("the pull failed: %v", err)
				}
				return
			}
			if got := reason(err); got != workerapi.ReasonRegistryUnavail || !strings.Contains(err.Error(), "registries[].caBundle") {
				t.Errorf("got %s (%v), want %s and the name of the setting", got, err, workerapi.ReasonRegistryUnavail)
			}
		})
	}
}

// TestAdviceForPlainHTTP checks that the message names the setting if a registry answers over plain HTTP without being listed for it.
func TestAdviceForPlainHTTP(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	_, err := puller().Pull(t.Context(), []string{server.Host + "/app:1"}, amd64)
	if got := reason(err); got != workerapi.ReasonRegistryUnavail || !strings.Contains(err.Error(), "registries[].plainHTTP") {
		t.Errorf("got %s (%v), want %s and the name of the setting", got, err, workerapi.ReasonRegistryUnavail)
	}
}

func TestValidate(t *testing.T) {
	bundle := pemOf(selfSigned())
	for what, c := range map[string]struct {
		registry workerapi.Registry
		want     string
	}{
		"all of it":                  {workerapi.Registry{Host: "docker.io", CABundle: bundle, Mirrors: []string{"mirror.example/hub", "localhost:5000"}}, ""},
		"a host with a path":         {workerapi.Registry{Host: "a.b/c"}, "not a host name"},
		"no certificates":            {workerapi.Registry{Host: "a.b", CABundle: "x"}, "caBundle of a.b"},
		"a mirror of Docker Hub's":   {workerapi.Registry{Host: "a.b", Mirrors: []string{"mirror/hub"}}, "mirror/hub"},
		"Docker Hub as a mirror":     {workerapi.Registry{Host: "a.b", Mirrors: []string{"registry-1.docker.io/library"}}, ""},
		"a mirror in capitals":       {workerapi.Registry{Host: "a.b", Mirrors: []string{"MIRROR.example:5000/hub"}}, ""},
		"a mirror with a scheme":     {workerapi.Registry{Host: "a.b", Mirrors: []string{"http://mirror.example"}}, "mirror.example"},
		"a mirror that is no prefix": {workerapi.Registry{Host: "a.b", Mirrors: []string{"mirror.example/A B"}}, "A B"},
	} {
		t.Run(what, func(t *testing.T) {
			err := workerregistry.Validate([]workerapi.Registry{c.registry})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestRegistriesThroughTheProxy checks that registries are reached through the proxy of the environment, and that no error contains
// the proxy's credentials.
func TestRegistriesThroughTheProxy(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	pull := func(host string) error {
		_, err := puller("registry.proxied.test").Pull(t.Context(), []string{host + "/app:1"}, amd64)
		return err
	}
	environmentProxy = proxy{to: server.Host}
	if err := pull("registry.proxied.test"); err != nil {
		t.Errorf("through the proxy: %v", err)
	}
	if !slices.Contains(environmentProxy.requestedHosts, "registry.proxied.test") || !slices.Contains(environmentProxy.users, proxyUser) {
		t.Errorf("the proxy was asked for %v by %v, want registry.proxied.test by %s", environmentProxy.requestedHosts, environmentProxy.users, proxyUser)
	}
	for what, broken := range map[string]proxy{"refuses its user": {refuse: true}, "does not know the host": {to: "127.0.0.1:1"}} {
		environmentProxy = broken
		for scheme, host := range map[string]string{"http": "registry.proxied.test", "https": "registry.secure.test"} {
			err := pull(host)
			if err == nil {
				t.Fatalf("a proxy that %s: the pull over %s succeeded", what, scheme)
			}
			if described := failure.Describe(err, "none"); strings.Contains(err.Error()+described.Message, proxyKey) {
				t.Errorf("a proxy that %s: the error over %s discloses its password: %v", what, scheme, err)
			}
		}
	}
}
