package registry_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}

func puller(hosts ...string) *registry.Puller {
	p := &registry.Puller{Log: slog.New(slog.DiscardHandler), Now: time.Now}
	for _, host := range hosts {
		p.Registries = append(p.Registries, workerapi.Registry{Host: host, PlainHTTP: true})
	}
	return p
}

func reason(err error) string {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return fmt.Sprintf("no reason: %v", err)
}

// recorder counts the requests to a registry, and keeps the users in them.
type recorder struct {
	mu             sync.Mutex
	requests       int
	authorizations map[string]bool
}

func (r *recorder) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		if r.authorizations == nil {
			r.authorizations = map[string]bool{}
		}
		r.requests++
		if a := request.Header.Get("Authorization"); a != "" {
			user, _, _ := request.BasicAuth()
			r.authorizations[user] = true
		}
		r.mu.Unlock()
		next.ServeHTTP(w, request)
	})
}

// requireUser returns a wrapper that allows requests of one user only.
func requireUser(user string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got, _, _ := r.BasicAuth(); got != user {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func withCredentials(t *testing.T, p *registry.Puller, auths map[string]string) {
	t.Helper()
	var entries []string
	for key, user := range auths {
		entries = append(entries, `"`+key+`": `+basic(user))
	}
	dir := secrets(t, map[string]string{"pull/.dockerconfigjson": `{"auths": {` + strings.Join(entries, ",") + `}}`})
	credentials, err := registry.LoadCredentials(dir, p.Log)
	if err != nil {
		t.Fatal(err)
	}
	p.Credentials = credentials
}

func TestPlatforms(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	onAMD64 := registrytest.ImageFor(t, "amd64", registrytest.Files{"a": "amd64"})
	onARM64 := registrytest.ImageFor(t, "arm64", registrytest.Files{"a": "arm64"})
	index := server.PushIndex(t, "app/index:1", registrytest.Index(t, map[string]v1.Image{"amd64": onAMD64, "arm64": onARM64}))
	plain := server.Push(t, "app/plain:1", onARM64)
	unlabelled := registrytest.WithPlatform(t, onAMD64, v1.Platform{})
	noArchitecture := registrytest.WithPlatform(t, onAMD64, v1.Platform{OS: "linux"})
	// Both children were built on one machine, and declare its platform.
	mistaken := server.PushIndex(t, "app/mistaken:1", registrytest.Index(t, map[string]v1.Image{"amd64": noArchitecture, "arm64": onAMD64}))
	arm64 := v1.Platform{OS: "linux", Architecture: "arm64"}

	for what, c := range map[string]struct {
		reference  string
		platform   v1.Platform
		wantDigest string
		want       string // platform, or reason of the failure
	}{
		"an index leads to the platform's own manifest":     {index, arm64, registrytest.Digest(t, onARM64), "linux/arm64"},
		"another platform of the same index":                {index, amd64, registrytest.Digest(t, onAMD64), "linux/amd64"},
		"an index without the platform":                     {index, v1.Platform{OS: "linux", Architecture: "s390x"}, "", workerapi.ReasonPlatformMismatch},
		"a plain manifest":                                  {plain, arm64, registrytest.Digest(t, onARM64), "linux/arm64"},
		"a plain manifest that says it is for another":      {plain, amd64, registrytest.Digest(t, onARM64), "linux/amd64"},
		"a plain manifest that names none is what is asked": {server.Push(t, "app/none:1", unlabelled), arm64, registrytest.Digest(t, unlabelled), "linux/arm64"},
		"a plain manifest without an architecture":          {server.Push(t, "app/no:1", noArchitecture), arm64, registrytest.Digest(t, noArchitecture), "linux/arm64"},
		"an index counts more than a wrong configuration":   {mistaken, arm64, registrytest.Digest(t, onAMD64), "linux/arm64"},
		"an index counts more than a missing architecture":  {mistaken, amd64, registrytest.Digest(t, noArchitecture), "linux/amd64"},
		"such an index without the platform":                {mistaken, v1.Platform{OS: "linux", Architecture: "s390x"}, "", workerapi.ReasonPlatformMismatch},
		"a digest that is not there":                        {server.Host + "/app/plain@" + registrytest.Digest(t, onAMD64), amd64, "", workerapi.ReasonImageNotFound},
		"a repository that is not there":                    {server.Host + "/app/missing:1", amd64, "", workerapi.ReasonImageNotFound},
	} {
		t.Run(what, func(t *testing.T) {
			img, err := puller(server.Host).Pull(t.Context(), []string{c.reference}, c.platform)
			if err != nil {
				if got := reason(err); got != c.want {
					t.Errorf("failed with %s (%v), want %s", got, err, c.want)
				}
				return
			}
			if img.Platform.String() != c.want {
				t.Errorf("platform %s, want %s", img.Platform.String(), c.want)
			}
			if c.wantDigest != "" && img.Digest.String() != c.wantDigest {
				t.Errorf("digest %s, want the platform manifest's: %s", img.Digest, c.wantDigest)
			}
		})
	}
}

// TestFallbackReferences checks that the next reference is used for missing images, but not for unavailable registries.
func TestFallbackReferences(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	there := server.Push(t, "app/there:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	broken := httptest.NewServer(http.NotFoundHandler())
	away := strings.TrimPrefix(broken.URL, "http://")
	broken.Close()

	img, err := puller(server.Host).Pull(t.Context(), []string{server.Host + "/app/gone:1", there}, amd64)
	if err != nil || img.Reference.String() != there {
		t.Errorf("a missing first reference: got %v and error %v, want %s", img, err, there)
	}
	_, err = puller(server.Host, away).Pull(t.Context(), []string{away + "/app:1", there}, amd64)
	if got := reason(err); got != workerapi.ReasonRegistryUnavail {
		t.Errorf("a first registry that is away: got %s, want %s", got, workerapi.ReasonRegistryUnavail)
	}
	_, err = puller(server.Host).Pull(t.Context(), []string{server.Host + "/app/gone:1", server.Host + "/app/lost:1"}, amd64)
	if got := reason(err); got != workerapi.ReasonImageNotFound || !strings.Contains(err.Error(), "app/gone:1") {
		t.Errorf("got %s (%v), want %s about the first reference", got, err, workerapi.ReasonImageNotFound)
	}
}

// TestCredentialsDoNotLeak checks that no credential reaches a registry that its Secret does not name: neither
// when that registry requests credentials, nor through a redirect.
func TestCredentialsDoNotLeak(t *testing.T) {
	var strange, storage recorder
	image := registrytest.Image(t, registrytest.Files{"a": "b"})

	t.Run("to a registry that asks for some", func(t *testing.T) {
		server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler { return strange.wrap(requireUser("anyone")(next)) })
		p := puller(server.Host)
		withCredentials(t, p, map[string]string{"registry.example": "secret-user", "127.0.0.1": "portless-user"})
		_, err := p.Pull(t.Context(), []string{server.Host + "/app:1"}, amd64)
		if got := reason(err); got != workerapi.ReasonUnauthorized {
			t.Errorf("got %s, want %s", got, workerapi.ReasonUnauthorized)
		}
		if strange.requests == 0 || len(strange.authorizations) > 0 {
			t.Errorf("%d requests with credentials of %v, want some requests without any", strange.requests, strange.authorizations)
		}
	})
	t.Run("to where a registry redirects", func(t *testing.T) {
		blobs := registrytest.NewRegistry(t, storage.wrap)
		blobs.Push(t, "app:1", image)
		storage.authorizations = nil
		var own recorder
		server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
			return own.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, "http://"+blobs.Host+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				requireUser("secret-user")(next).ServeHTTP(w, r)
			}))
		})
		// Pushing requires the user as well.
		p := puller(server.Host, blobs.Host)
		withCredentials(t, p, map[string]string{server.Host: "secret-user"})
		pushAs(t, server.Host, "secret-user", image)
		storage.authorizations = nil
		img, err := p.Pull(t.Context(), []string{server.Host + "/app:1"}, amd64)
		if err != nil {
			t.Fatal(err)
		}
		drain(t, img.Content)
		if !own.authorizations["secret-user"] || len(storage.authorizations) > 0 {
			t.Errorf("registry got %v, storage got %v; want the user's credentials for the registry only", own.authorizations, storage.authorizations)
		}
	})
}

// TestSeveralCredentials checks that all credentials for a registry are tried until one is accepted, and then an anonymous request,
// for public images.
func TestSeveralCredentials(t *testing.T) {
	var seen recorder
	server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler { return seen.wrap(requireUser("right")(next)) })
	pushAs(t, server.Host, "right", registrytest.Image(t, registrytest.Files{"a": "b"}))
	p := puller(server.Host)
	withCredentials(t, p, map[string]string{server.Host + "/app": "wrong", server.Host: "right"})
	if _, err := p.Pull(t.Context(), []string{server.Host + "/app:1"}, amd64); err != nil {
		t.Errorf("the second credential is right, and the pull failed: %v", err)
	}
	if diff := cmp.Diff(map[string]bool{"wrong": true, "right": true}, seen.authorizations); diff != "" {
		t.Errorf("credentials tried (-want +got):\n%s", diff)
	}

	public := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			// Clients send credentials only after such a challenge.
			if r.URL.Path == "/v2/" {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	public.Push(t, "app:1", image)
	p = puller(public.Host)
	withCredentials(t, p, map[string]string{public.Host: "expired"})
	if _, err := p.Pull(t.Context(), []string{public.Host + "/app:1"}, amd64); err != nil {
		t.Errorf("the image is public, and the pull with an expired credential failed: %v", err)
	}
}

// TestPlainHTTPOnlyWhereListed uses a loopback address, for which the client library would fall back to HTTP.
func TestPlainHTTPOnlyWhereListed(t *testing.T) {
	var seen recorder
	server := registrytest.NewRegistry(t, seen.wrap)
	reference := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	before := seen.requests
	_, err := puller("registry.example").Pull(t.Context(), []string{reference}, amd64)
	if !errors.Is(err, registry.ErrPlainHTTP) && reason(err) != workerapi.ReasonRegistryUnavail {
		t.Errorf("got %v, want a refusal to speak plain HTTP", err)
	}
	if seen.requests != before {
		t.Errorf("%d requests over plain HTTP to a host that is not listed", seen.requests-before)
	}
}

func TestReasonsOfRefusals(t *testing.T) {
	for what, c := range map[string]struct {
		status int
		body   string
		header string
		want   workerapi.Failure
	}{
		"401":                 {401, "", "", workerapi.Failure{Reason: workerapi.ReasonUnauthorized}},
		"403":                 {403, `{"errors":[{"code":"DENIED"}]}`, "", workerapi.Failure{Reason: workerapi.ReasonUnauthorized}},
		"404":                 {404, "", "", workerapi.Failure{Reason: workerapi.ReasonImageNotFound}},
		"unknown manifest":    {404, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, "", workerapi.Failure{Reason: workerapi.ReasonImageNotFound}},
		"unknown name as 400": {400, `{"errors":[{"code":"NAME_UNKNOWN"}]}`, "", workerapi.Failure{Reason: workerapi.ReasonImageNotFound}},
		"429 with a time":     {429, "", "120", workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 120}},
		"429 for ever":        {429, "", "9000000000000000000", workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 24 * 60 * 60}},
		"429 for a quota":     {429, `{"errors":[{"code":"DENIED","message":"quota exceeded"}]}`, "60", workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 60}},
		"429 without a time":  {429, `{"errors":[{"code":"TOOMANYREQUESTS"}]}`, "", workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled}},
		"501":                 {501, "", "", workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"a signature":         {200, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","data":"e30="},"layers":[]}`, "", workerapi.Failure{Reason: workerapi.ReasonNotAnImage}},
		"schema 1":            {200, `{"schemaVersion":1}`, "schema1", workerapi.Failure{Reason: workerapi.ReasonNotAnImage}},
		"nonsense":            {200, `{"schemaVersion":2}`, "", workerapi.Failure{Reason: workerapi.ReasonNotAnImage}},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				if strings.Contains(r.URL.Path, "/blobs/") {
					fmt.Fprint(w, "{}")
					return
				}
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				if c.header == "schema1" {
					w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v1+prettyjws")
				} else if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			_, err := puller(host).Pull(t.Context(), []string{host + "/app:1"}, amd64)
			if err == nil {
				t.Fatal("the pull succeeded")
			}
			got := failure.Describe(err, "none")
			got.Message = ""
			if c.want.Reason == workerapi.ReasonRegistryThrottled {
				c.want.Registry = host
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%v\nfailure (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestUnreachableAndUntrustedRegistries(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	for what, host := range map[string]string{
		"nobody there":            "127.0.0.1:1",
		"certificate of a nobody": strings.TrimPrefix(untrusted.URL, "https://"),
		"no such name":            "registry.invalid",
	} {
		t.Run(what, func(t *testing.T) {
			_, err := puller().Pull(t.Context(), []string{host + "/app:1"}, amd64)
			if got := reason(err); got != workerapi.ReasonRegistryUnavail {
				t.Errorf("got %s (%v), want %s", got, err, workerapi.ReasonRegistryUnavail)
			}
		})
	}
}

func drain(t *testing.T, image v1.Image) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := content.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		content.Close()
	}
}
