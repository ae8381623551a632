package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// cloudHost is a host of a cloud that leads to a registry of the test.
const cloudHost = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"

// fakeIdentity issues the passwords "password-0", "password-1", … for the user "AWS".
type fakeIdentity struct {
	current int
	// err is returned instead of a credential.
	err error
	// asked are the hosts that a credential was requested for.
	asked []string
}

func (i *fakeIdentity) Credential(_ context.Context, registry workerapi.Registry) (authn.AuthConfig, error) {
	i.asked = append(i.asked, registry.Host)
	return authn.AuthConfig{Username: "AWS", Password: i.password()}, i.err
}

func (i *fakeIdentity) String() string { return "ServiceAccount scanning/catalog" }

func (i *fakeIdentity) password() string { return fmt.Sprintf("password-%d", i.current) }

// cloudRegistry is a registry that accepts only the current password of an identity, or a token that was made for it.
type cloudRegistry struct {
	*registrytest.Registry
	identity *fakeIdentity
	// image is the reference by its cloud's host and digest.
	image string
	// refuse makes the registry refuse everybody, and open lets everybody pull.
	refuse, open bool
	// layers is called before a layer is sent.
	layers func()
}

func newCloudRegistry(t *testing.T, challenge string) *cloudRegistry {
	t.Helper()
	c := &cloudRegistry{identity: &fakeIdentity{}, open: true}
	c.Registry = registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			known := !c.refuse && user == "AWS" && password == c.identity.password()
			switch {
			case r.URL.Path == "/token" && known:
				fmt.Fprintf(w, `{"token": %q}`, password)
			case c.open, known, !c.refuse && r.Header.Get("Authorization") == "Bearer "+c.identity.password():
				if c.layers != nil && strings.Contains(r.URL.Path, "/blobs/") {
					c.layers()
				}
				next.ServeHTTP(w, r)
			default:
				w.Header().Set("WWW-Authenticate", strings.ReplaceAll(challenge, "%s", "https://"+cloudHost+"/token"))
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
	})
	image := registrytest.Image(t, registrytest.Files{"a": "1"}, registrytest.Files{"b": "2"}, registrytest.Files{"c": "3"})
	c.Push(t, "app:1", image)
	c.image, c.open = cloudHost+"/app@"+registrytest.Digest(t, image), false
	return c
}

// puller returns a Puller with the identity, to which the cloud's host is the registry of the test.
func (c *cloudRegistry) puller() *registry.Puller {
	p := puller()
	p.Registries = []workerapi.Registry{{Host: cloudHost, Provider: workerapi.ProviderAWS}}
	p.Identity = c.identity
	p.Transport = transportFunc(func(r *http.Request) (*http.Response, error) {
		redirected := r.Clone(r.Context())
		if r.URL.Host == cloudHost {
			redirected.URL.Scheme, redirected.URL.Host = "http", c.Host
		}
		response, err := http.DefaultTransport.RoundTrip(redirected)
		if err == nil {
			response.Request = r
		}
		return response, err
	})
	return p
}

// TestPullByIdentity: an identity pulls where the configuration names a provider, and gives its credential to no other host.
func TestPullByIdentity(t *testing.T) {
	for scheme, challenge := range map[string]string{"basic": basicChallenge, "bearer": bearerChallenge} {
		t.Run(scheme, func(t *testing.T) {
			server := newCloudRegistry(t, challenge)
			if _, err := server.puller().Pull(t.Context(), []string{server.image}, amd64); err != nil {
				t.Fatalf("the pull failed: %v", err)
			}
			p := server.puller()
			p.Registries[0].Provider = ""
			server.identity.asked = nil
			if _, err := p.Pull(t.Context(), []string{server.image}, amd64); reason(err) != workerapi.ReasonNodeCredentials {
				t.Errorf("without a provider: got %v, want %s", err, workerapi.ReasonNodeCredentials)
			}
			if len(server.identity.asked) > 0 {
				t.Errorf("without a provider, the identity was asked for a credential of %q", server.identity.asked)
			}
		})
	}
}

// TestIdentityPullsFromAMirror: a pull-through cache of a cloud is a mirror with a provider of its own.
func TestIdentityPullsFromAMirror(t *testing.T) {
	server := newCloudRegistry(t, basicChallenge)
	p := server.puller()
	p.Registries = append(p.Registries, workerapi.Registry{Host: "registry.example.com", Mirrors: []string{cloudHost}})
	image, err := p.Pull(t.Context(), []string{strings.Replace(server.image, cloudHost, "registry.example.com", 1)}, amd64)
	if err != nil || image.Mirror != cloudHost {
		t.Errorf("got %+v (%v), want the image of the mirror %s", image, err, cloudHost)
	}
}

// TestCredentialExpiresDuringAPull: each layer is pulled with a credential that is valid at that time, whatever the registry's scheme.
func TestCredentialExpiresDuringAPull(t *testing.T) {
	for scheme, challenge := range map[string]string{"basic": basicChallenge, "bearer": bearerChallenge} {
		t.Run(scheme, func(t *testing.T) {
			server := newCloudRegistry(t, challenge)
			image, err := server.puller().Pull(t.Context(), []string{server.image}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			// From here on, the credential expires after each layer.
			server.layers = func() { server.identity.current++ }
			layers, err := image.Content.Layers()
			if err != nil {
				t.Fatal(err)
			}
			for n, layer := range layers {
				content, err := layer.Compressed()
				if err != nil {
					t.Fatalf("layer %d of %d: %v", n+1, len(layers), err)
				}
				_ = content.Close()
			}
			if server.identity.current != len(layers) {
				t.Errorf("%d credentials were used for %d layers, want one for each", server.identity.current, len(layers))
			}
		})
	}
}

// TestIdentityEndsDuringAPull: the failure of a pull whose credential cannot be renewed has the identity's reason.
func TestIdentityEndsDuringAPull(t *testing.T) {
	server := newCloudRegistry(t, bearerChallenge)
	image, err := server.puller().Pull(t.Context(), []string{server.image}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	server.identity.current++
	server.identity.err = failure.New(workerapi.ReasonIdentityMissing, errors.New("the role is gone"))
	layers, err := image.Content.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layers[0].Uncompressed(); reason(err) != workerapi.ReasonIdentityMissing || !strings.Contains(err.Error(), "the role is gone") {
		t.Errorf("got %v, want %s with the identity's explanation", err, workerapi.ReasonIdentityMissing)
	}
}

// TestRefusalOfAnIdentity: each message says who was refused, and what to change.
func TestRefusalOfAnIdentity(t *testing.T) {
	throttled := &failure.Error{Reason: workerapi.ReasonRegistryThrottled, RetryAfter: time.Minute, Registry: cloudHost, Err: errors.New("the token service limits requests")}
	missing := failure.New(workerapi.ReasonIdentityMissing, errors.New("annotate ServiceAccount scanning/catalog"))
	wrong := fmt.Sprintf(`{"auths": {%q: {"username": "AWS", "password": "old"}}}`, cloudHost)
	for what, c := range map[string]struct {
		identityErr error
		withoutOne  bool
		open        bool
		secrets     map[string]string
		reason      string // empty if the pull succeeds
		want        []string
	}{
		"it may not read the repository": {nil, false, false, nil, workerapi.ReasonUnauthorized,
			[]string{"refuses the aws identity of ServiceAccount scanning/catalog", "let it read this repository (ecr:BatchGetImage"}},
		"beside a pull secret": {nil, false, false, map[string]string{"regcred/.dockerconfigjson": wrong}, workerapi.ReasonUnauthorized,
			[]string{`refuses the credential of pull secret "regcred" for ` + cloudHost + " and the aws identity of"}},
		"it is missing": {missing, false, false, nil, workerapi.ReasonIdentityMissing,
			[]string{cloudHost + " requires credentials: annotate ServiceAccount scanning/catalog"}},
		"it is missing, and so is the pull secret": {missing, false, false, map[string]string{"regcred/..data": ""}, workerapi.ReasonIdentityMissing,
			[]string{"annotate ServiceAccount", `"regcred" (missing or empty) cannot be used either`}},
		"it is missing, and a pull secret refused": {missing, false, false, map[string]string{"regcred/.dockerconfigjson": wrong}, workerapi.ReasonUnauthorized,
			[]string{`refuses the credential of pull secret "regcred"`, "annotate ServiceAccount"}},
		"its token service throttles": {throttled, false, false, nil, workerapi.ReasonRegistryThrottled, []string{"limits requests"}},
		"it throttles, and a pull secret is refused": {throttled, false, false, map[string]string{"regcred/.dockerconfigjson": wrong},
			workerapi.ReasonRegistryThrottled, []string{"limits requests"}},
		"it is missing, the image is public": {missing, false, true, nil, "", nil},
		"this pull has none": {nil, true, false, nil, workerapi.ReasonNodeCredentials,
			[]string{"registries[].provider is aws for this host, and this pull has no identity"}},
	} {
		t.Run(what, func(t *testing.T) {
			server := newCloudRegistry(t, basicChallenge)
			server.refuse, server.open, server.identity.err = true, c.open, c.identityErr
			p := server.puller()
			if c.withoutOne {
				p.Identity = nil
			}
			var err error
			if p.Credentials, err = registry.LoadCredentials(secrets(t, c.secrets), p.Log); err != nil {
				t.Fatal(err)
			}
			_, err = p.Pull(t.Context(), []string{server.image}, amd64)
			if c.reason == "" {
				if err != nil {
					t.Errorf("the pull failed: %v", err)
				}
				return
			}
			described := failure.Describe(err, "none")
			if described.Reason != c.reason {
				t.Errorf("got %+v, want %s", described, c.reason)
			}
			for _, want := range c.want {
				if !strings.Contains(described.Message, want) {
					t.Errorf("the message does not say %q:\n%s", want, described.Message)
				}
			}
			if c.reason == workerapi.ReasonRegistryThrottled && (described.Registry != cloudHost || described.RetryAfterSeconds != 60) {
				t.Errorf("got %+v, want the registry and the requested wait", described)
			}
		})
	}
}
