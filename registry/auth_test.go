package registry_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// authRegistry is a registry that requires credentials. It contains an image as app:1.
type authRegistry struct {
	*registrytest.Registry
	reference string
	open      bool
	// tokenLifetime is the lifetime of tokens in seconds that the token server states; 0 if it states none.
	tokenLifetime int
	// grants are the credentials that tokens were given for, such as "password robot".
	grants []string
	// anonymous makes the token server give a valid token to everybody.
	anonymous bool
}

// The credentials of the only user.
const (
	goodUser, goodPassword = "robot", "s3cret-password"
	goodRefresh            = "s3cret-refresh-token"
	goodAccess             = "s3cret-access-token"
)

// newAuthRegistry starts a registry. challenge is the value of WWW-Authenticate, with %s for the URL of its token server. The token server
// has the same address: on loopback, the client library accepts no other.
func newAuthRegistry(t *testing.T, challenge string) *authRegistry {
	t.Helper()
	g := &authRegistry{open: true}
	g.Registry = registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				g.token(w, r)
				return
			}
			user, password, _ := r.BasicAuth()
			basic := strings.HasPrefix(challenge, "Basic") && user == goodUser && password == goodPassword
			if !g.open && !basic && r.Header.Get("Authorization") != "Bearer "+goodAccess {
				w.Header().Set("WWW-Authenticate", strings.ReplaceAll(challenge, "%s", "http://"+r.Host+"/token"))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	g.reference = g.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	g.open = false
	return g
}

// token implements https://distribution.github.io/distribution/spec/auth/token/ for GET and .../oauth/ for POST.
func (g *authRegistry) token(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	switch {
	case r.Method == http.MethodPost && r.PostFormValue("grant_type") == "refresh_token" && r.PostFormValue("refresh_token") == goodRefresh:
		g.grants = append(g.grants, "refresh token")
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	case user == goodUser && password == goodPassword:
		g.grants = append(g.grants, "password "+user)
	case g.anonymous && user == "":
		g.grants = append(g.grants, "nobody")
	default:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	answer := map[string]any{"access_token": goodAccess}
	if g.tokenLifetime != 0 {
		answer["expires_in"] = g.tokenLifetime
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// pull pulls the image with the pull secrets in files, and returns the log.
func (g *authRegistry) pull(t *testing.T, files map[string]string) (log string, err error) {
	t.Helper()
	var lines strings.Builder
	p := puller(g.Host)
	p.Log = slog.New(slog.NewTextHandler(&lines, nil))
	if p.Credentials, err = registry.LoadCredentials(secrets(t, files), p.Log); err != nil {
		t.Fatal(err)
	}
	_, err = p.Pull(t.Context(), []string{g.reference}, amd64)
	return lines.String(), err
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

const (
	basicChallenge  = `Basic realm="test"`
	bearerChallenge = `Bearer realm="%s",service="registry"`
)

// TestAuthentication combines every form of credentials in a pull secret with every challenge of a registry.
func TestAuthentication(t *testing.T) {
	password := fmt.Sprintf(`{"username": %q, "password": %q}`, goodUser, goodPassword)
	encoded := fmt.Sprintf(`{"auth": %q}`, inBase64(goodUser+":"+goodPassword))
	unpadded := fmt.Sprintf(`{"auth": %q}`, strings.TrimRight(inBase64(goodUser+":"+goodPassword), "="))
	wrong := `{"username": "stranger", "password": "x"}`
	for what, c := range map[string]struct {
		challenge string
		secrets   map[string]string // Secret/key → entry for the registry
		grant     string            // what the token was granted for; empty without a token server
	}{
		"basic, user and password":           {basicChallenge, map[string]string{"a/.dockerconfigjson": password}, ""},
		"basic, both in base64":              {basicChallenge, map[string]string{"a/.dockerconfigjson": encoded}, ""},
		"basic, base64 without padding":      {basicChallenge, map[string]string{"a/.dockerconfigjson": unpadded}, ""},
		"basic, legacy dockercfg":            {basicChallenge, map[string]string{"a/.dockercfg": encoded}, ""},
		"basic, the second of two Secrets":   {basicChallenge, map[string]string{"a/.dockerconfigjson": wrong, "b/.dockercfg": password}, ""},
		"bearer, user and password":          {bearerChallenge, map[string]string{"a/.dockerconfigjson": password}, "password robot"},
		"bearer, both in base64":             {bearerChallenge, map[string]string{"a/.dockerconfigjson": encoded}, "password robot"},
		"bearer, identity token":             {bearerChallenge, map[string]string{"a/.dockerconfigjson": fmt.Sprintf(`{"identitytoken": %q}`, goodRefresh)}, "refresh token"},
		"bearer, identity token as in ACR":   {bearerChallenge, map[string]string{"a/.dockerconfigjson": fmt.Sprintf(`{"auth": %q, "identitytoken": %q}`, inBase64("00000000-0000-0000-0000-000000000000:"), goodRefresh)}, "refresh token"},
		"bearer, access token of its own":    {bearerChallenge, map[string]string{"a/.dockerconfigjson": fmt.Sprintf(`{"registrytoken": %q}`, goodAccess)}, ""},
		"bearer, the second of two Secrets":  {bearerChallenge, map[string]string{"a/.dockerconfigjson": wrong, "b/.dockerconfigjson": password}, "password robot"},
		"bearer, after a bad identity token": {bearerChallenge, map[string]string{"a/.dockerconfigjson": `{"identitytoken": "old"}`, "b/.dockerconfigjson": password}, "password robot"},
		"bearer, legacy dockercfg":           {bearerChallenge, map[string]string{"a/.dockercfg": encoded}, "password robot"},
		"bearer, among unusable Secrets":     {bearerChallenge, map[string]string{"a/.dockerconfigjson": `{"auth": "%"}`, "b/.dockerconfigjson": password, "c/..data": ""}, "password robot"},
	} {
		t.Run(what, func(t *testing.T) {
			server := newAuthRegistry(t, c.challenge)
			files := map[string]string{}
			for file, entry := range c.secrets {
				files[file] = fmt.Sprintf(`{"auths": {%q: %s}}`, server.Host, entry)
				if strings.HasSuffix(file, ".dockercfg") {
					files[file] = fmt.Sprintf(`{%q: %s}`, "https://"+server.Host+"/v2/", entry)
				}
			}
			log, err := server.pull(t, files)
			if err != nil {
				t.Fatalf("the pull failed: %v", err)
			}
			if c.grant != "" && !slices.Contains(server.grants, c.grant) || c.grant == "" && len(server.grants) > 0 {
				t.Errorf("tokens were given for %q, want %q", server.grants, c.grant)
			}
			if strings.Contains(log, "s3cret") {
				t.Errorf("the log contains a secret:\n%s", log)
			}
		})
	}
}

// TestRefusalMessages checks that each message names the probable cause and the remedy, and never the content of a Secret.
func TestRefusalMessages(t *testing.T) {
	const wrong = `{"username": "stranger", "password": "s3cret"}`
	here := func(entry string) string { return `{"auths": {"HOST": ` + entry + `}}` }
	for what, c := range map[string]struct {
		files  map[string]string
		reason string
		want   []string
	}{
		"missing pull secret":           {map[string]string{"regcred/..data": ""}, workerapi.ReasonPullSecretMissing, []string{`"regcred" (missing or empty)`, "kubectl create secret docker-registry regcred --docker-server=HOST"}},
		"pull secret of another kind":   {map[string]string{"regcred/tls.key": "s3cret"}, workerapi.ReasonPullSecretMissing, []string{`"regcred" (it has neither .dockerconfigjson nor .dockercfg)`}},
		"pull secret that is no JSON":   {map[string]string{"regcred/.dockerconfigjson": "s3cret"}, workerapi.ReasonPullSecretMissing, []string{`"regcred" (.dockerconfigjson is not valid JSON`}},
		"pull secret without entries":   {map[string]string{"regcred/.dockerconfigjson": "{}"}, workerapi.ReasonPullSecretMissing, []string{`"regcred" (.dockerconfigjson holds no credentials)`}},
		"pull secret with broken entry": {map[string]string{"regcred/.dockerconfigjson": here(`{"auth": "s3cret!"}`)}, workerapi.ReasonPullSecretMissing, []string{`"regcred" (an entry of .dockerconfigjson has no readable credentials)`}},
		"several missing pull secrets":  {map[string]string{"a/..data": "", "b/..data": "", "c/..data": "", "d/..data": "", "e/..data": ""}, workerapi.ReasonPullSecretMissing, []string{`"a"`, `"b"`, `"c"`, " and 2 more"}},
		"broken entry of another registry": {map[string]string{"regcred/.dockerconfigjson": `{"auths": {"other.example": {"auth": "s3cret!"}}}`},
			workerapi.ReasonUnauthorized, []string{"no pull secret of the image's pods has any", "#credentials-that-only-nodes-have"}},
		"no pull secret at all":       {nil, workerapi.ReasonUnauthorized, []string{"no pull secret of the image's pods has any", "imagePullSecret", "#credentials-that-only-nodes-have"}},
		"credential of pull secret":   {map[string]string{"regcred/.dockerconfigjson": here(wrong)}, workerapi.ReasonUnauthorized, []string{`HOST refuses the credential of pull secret "regcred" for HOST`}},
		"credential and missing one":  {map[string]string{"regcred/.dockerconfigjson": here(wrong), "other/..data": ""}, workerapi.ReasonUnauthorized, []string{`"regcred" for HOST`, `"other" (missing or empty)`}},
		"identity token that expired": {map[string]string{"regcred/.dockerconfigjson": here(`{"identitytoken": "s3cret"}`)}, workerapi.ReasonUnauthorized, []string{`"regcred" for HOST`}},
	} {
		for scheme, challenge := range map[string]string{"basic": basicChallenge, "bearer": bearerChallenge} {
			t.Run(what+", "+scheme, func(t *testing.T) {
				server := newAuthRegistry(t, challenge)
				files := map[string]string{}
				for file, content := range c.files {
					files[file] = strings.ReplaceAll(content, "HOST", server.Host)
				}
				log, err := server.pull(t, files)
				if err == nil {
					t.Fatal("the pull succeeded")
				}
				described := failure.Describe(err, "none")
				if described.Reason != c.reason {
					t.Errorf("reason %s, want %s", described.Reason, c.reason)
				}
				for _, want := range c.want {
					if want = strings.ReplaceAll(want, "HOST", server.Host); !strings.Contains(described.Message, want) {
						t.Errorf("the message does not say %q:\n%s", want, described.Message)
					}
				}
				if len(described.Message) > 700 {
					t.Errorf("the message has %d bytes, want what fits into a condition with the advice in its first half", len(described.Message))
				}
				if strings.Contains(described.Message+log, "s3cret") {
					t.Errorf("message or log contain a secret:\n%s\n%s", described.Message, log)
				}
			})
		}
	}
}

// TestMissingPullSecretOfAPublicImage checks that a missing Secret is no failure if the registry allows anonymous pulls.
func TestMissingPullSecretOfAPublicImage(t *testing.T) {
	server := newAuthRegistry(t, bearerChallenge)
	server.anonymous = true
	if _, err := server.pull(t, map[string]string{"regcred/..data": "", "broken/.dockerconfigjson": "{"}); err != nil {
		t.Errorf("the image is public, and the pull failed: %v", err)
	}
}

// TestMissingPullSecretOfAHiddenImage checks that the message names the missing Secret if a registry answers 404, as some do for
// private images.
func TestMissingPullSecretOfAHiddenImage(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	p := puller(server.Host)
	var err error
	if p.Credentials, err = registry.LoadCredentials(secrets(t, map[string]string{"regcred/..data": ""}), p.Log); err != nil {
		t.Fatal(err)
	}
	_, err = p.Pull(t.Context(), []string{server.Host + "/hidden:1"}, amd64)
	if got := reason(err); got != workerapi.ReasonImageNotFound || !strings.Contains(err.Error(), `"regcred" (missing or empty)`) {
		t.Errorf("got %s (%v), want %s that names the pull secret", got, err, workerapi.ReasonImageNotFound)
	}
}

// TestPullSecretWithInvalidName checks that the author of a pod cannot insert a command into the message for users.
func TestPullSecretWithInvalidName(t *testing.T) {
	p := puller("registry.example.com")
	p.Transport = transportFunc(refuseAll)
	p.Credentials = registry.ParseCredentials(map[string]map[string][]byte{"a;echo evil;#": nil}, p.Log)
	_, err := p.Pull(t.Context(), []string{"registry.example.com/app:1"}, amd64)
	described := failure.Describe(err, "none")
	if described.Reason != workerapi.ReasonPullSecretMissing || !strings.Contains(described.Message, `"a;echo evil;#" (not a name of a Secret) cannot be used; correct the pods' imagePullSecrets`) {
		t.Errorf("got %+v, want %s that says what is wrong with the name", described, workerapi.ReasonPullSecretMissing)
	}
	if strings.Contains(described.Message, "kubectl") {
		t.Errorf("the message holds a command: %s", described.Message)
	}
}

// transportFunc replaces the network.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func refuseAll(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	recorder.Header().Set("WWW-Authenticate", basicChallenge)
	recorder.WriteHeader(http.StatusUnauthorized)
	response := recorder.Result()
	response.Request = r
	return response, nil
}

// TestNodeCredentialsOnly checks the reason for registries of clouds that give credentials only to their nodes.
func TestNodeCredentialsOnly(t *testing.T) {
	for host, want := range map[string]string{
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com":           workerapi.ReasonNodeCredentials,
		"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn":          workerapi.ReasonNodeCredentials,
		"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com":     workerapi.ReasonNodeCredentials,
		"123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov":             workerapi.ReasonNodeCredentials,
		"123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov":         workerapi.ReasonNodeCredentials,
		"123456789012.dkr-ecr.eu-west-1.on.aws":                     workerapi.ReasonNodeCredentials,
		"europe-west3-docker.pkg.dev":                               workerapi.ReasonNodeCredentials,
		"gcr.io":                                                    workerapi.ReasonNodeCredentials,
		"eu.gcr.io":                                                 workerapi.ReasonNodeCredentials,
		"company.azurecr.io":                                        workerapi.ReasonNodeCredentials,
		"company.azurecr.cn":                                        workerapi.ReasonNodeCredentials,
		"company.azurecr.us":                                        workerapi.ReasonNodeCredentials,
		"public.ecr.aws":                                            workerapi.ReasonUnauthorized,
		"registry.example.com":                                      workerapi.ReasonUnauthorized,
		"mygcr.io":                                                  workerapi.ReasonUnauthorized,
		"gcr.io.example.com":                                        workerapi.ReasonUnauthorized,
		"azurecr.io.example.com":                                    workerapi.ReasonUnauthorized,
		"1.dkr.ecr.eu-central-1.amazonaws.com.example.com":          workerapi.ReasonUnauthorized,
		"europe-west3-npm.pkg.dev":                                  workerapi.ReasonUnauthorized,
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com:8443":      workerapi.ReasonUnauthorized,
		"123456789012.dkr.ecr.eu-central-1.evil.amazonaws.com.evil": workerapi.ReasonUnauthorized,
	} {
		t.Run(host, func(t *testing.T) {
			p := puller()
			p.Transport = transportFunc(refuseAll)
			_, err := p.Pull(t.Context(), []string{host + "/app:1"}, amd64)
			// The provider to configure is named for the hosts of clouds, and for no other.
			provider := "registries[].provider: " + workerapi.ProviderOf(host) + " for this host"
			if strings.Contains(err.Error(), provider) != (want == workerapi.ReasonNodeCredentials) {
				t.Errorf("got %v, want %q in it: %t", err, provider, want == workerapi.ReasonNodeCredentials)
			}
			if got := reason(err); got != want || !strings.Contains(err.Error(), "docs/use/private-registries.md#credentials-that-only-nodes-have") {
				t.Errorf("got %s (%v), want %s with the address of the documentation", got, err, want)
			}
		})
	}
	t.Run("a credential that fits is what was refused", func(t *testing.T) {
		p := puller()
		p.Transport = transportFunc(refuseAll)
		withCredentials(t, p, map[string]string{"*.dkr.ecr.*.amazonaws.com": "AWS"})
		_, err := p.Pull(t.Context(), []string{"1.dkr.ecr.eu-central-1.amazonaws.com/app:1"}, amd64)
		if got := reason(err); got != workerapi.ReasonUnauthorized || !strings.Contains(err.Error(), `"pull" for *.dkr.ecr.*.amazonaws.com`) {
			t.Errorf("got %s (%v), want %s and whose credential it was", got, err, workerapi.ReasonUnauthorized)
		}
	})
}

// TestErrorsQuoteNoCredentials checks that no error contains a secret, whatever a registry or its token server quotes.
func TestErrorsQuoteNoCredentials(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"the registry quotes what it got": func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			w.Header().Set("WWW-Authenticate", basicChallenge)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "no %s with %s in %v", user, password, r.Header)
		},
		"the registry fails and quotes": func(w http.ResponseWriter, r *http.Request) {
			if _, password, ok := r.BasicAuth(); ok {
				w.WriteHeader(http.StatusNotImplemented)
				fmt.Fprint(w, password)
				return
			}
			w.Header().Set("WWW-Authenticate", basicChallenge)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"the registry serves a manifest with it": func(w http.ResponseWriter, r *http.Request) {
			if _, password, ok := r.BasicAuth(); ok {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				fmt.Fprintf(w, `{"schemaVersion": 2, "config": {"mediaType": %q, "size": 2, "digest": %q, "data": "e30="}, "layers": []}`, password, document.Digest([]byte("{}")))
				return
			}
			w.Header().Set("WWW-Authenticate", basicChallenge)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"the token server gives no token but another secret": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				fmt.Fprint(w, `{"refresh_token": "s3cret-of-the-server"}`)
				return
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		},
		"the registry quotes an access token": tokenServer(`{"access_token": "s3cret-of-the-server"}`, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprint(w, r.Header.Get("Authorization")[len("Bearer "):])
		}),
		"the registry refuses an access token by its name": tokenServer(`{"token": "s3cret-of-the-server"}`, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "s3cret-of-the-server")
		}),
		// The client requests the second token with the refresh token from the first answer.
		"the token server quotes a refresh token": func() http.HandlerFunc {
			tokens := 0
			return func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/token" && tokens == 0:
					tokens++
					fmt.Fprint(w, `{"token": "first", "refresh_token": "s3cret-of-the-server"}`)
				case r.URL.Path == "/token":
					w.WriteHeader(http.StatusNotImplemented)
					fmt.Fprint(w, r.PostFormValue("refresh_token"))
				default:
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
					w.WriteHeader(http.StatusUnauthorized)
				}
			}
		}(),
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			g := &authRegistry{Registry: &registrytest.Registry{Host: strings.TrimPrefix(server.URL, "http://")}}
			g.reference = g.Host + "/app:1"
			log, err := g.pull(t, map[string]string{"a/.dockerconfigjson": fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, g.Host, goodUser, goodPassword)})
			if err == nil {
				t.Fatal("the pull succeeded")
			}
			for _, secret := range []string{goodPassword, inBase64(goodUser + ":" + goodPassword), "s3cret-of-the-server"} {
				if strings.Contains(err.Error()+log, secret) {
					t.Errorf("%q is disclosed:\n%v\n%s", secret, err, log)
				}
			}
		})
	}
}

// tokenServer returns a registry with a token server. The registry answers requests with a token through refuse.
func tokenServer(token string, refuse http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			fmt.Fprint(w, token)
		case strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "):
			refuse(w, r)
		default:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
}

// TestSecretsWithCommonPrefix checks that the longer of two secrets with the same beginning is redacted completely.
func TestSecretsWithCommonPrefix(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, "no to hunter2-and-the-rest")
	}))
	defer server.Close()
	g := &authRegistry{Registry: &registrytest.Registry{Host: strings.TrimPrefix(server.URL, "http://")}}
	g.reference = g.Host + "/app:1"
	_, err := g.pull(t, map[string]string{
		"a/.dockerconfigjson": fmt.Sprintf(`{"auths": {%q: {"username": "a", "password": "hunter2"}}}`, g.Host),
		"b/.dockerconfigjson": fmt.Sprintf(`{"auths": {%q: {"username": "b", "password": "hunter2-and-the-rest"}}}`, g.Host),
	})
	if err == nil || !strings.Contains(err.Error(), "no to …") || strings.Contains(err.Error(), "rest") {
		t.Errorf("got %v, want the answer without the password", err)
	}
}
