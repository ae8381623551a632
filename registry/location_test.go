package registry_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// noon is the current time in tests of expiry.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fetchLayer fetches a layer as a client of a Location does. It returns the digest of the content, or the status.
func fetchLayer(t *testing.T, client *http.Client, layer registry.Layer, header http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, layer.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header.Clone()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return response.Status
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestAuthorizationForLayers checks for all kinds of challenges that the returned header gives access to the layers, and when it expires.
func TestAuthorizationForLayers(t *testing.T) {
	password := fmt.Sprintf(`{"username": %q, "password": %q}`, goodUser, goodPassword)
	for what, c := range map[string]struct {
		challenge string
		entry     string // of the pull secret; none if empty
		anonymous bool   // the token server gives a token to everybody
		life      int
		want      string
		expires   time.Duration // after noon; 0 for never
	}{
		"basic":                          {basicChallenge, password, false, 0, "Basic " + inBase64(goodUser+":"+goodPassword), 0},
		"bearer that says nothing":       {bearerChallenge, password, false, 0, "Bearer " + goodAccess, time.Minute},
		"bearer that expires":            {bearerChallenge, password, false, 300, "Bearer " + goodAccess, 5 * time.Minute},
		"bearer that expires at once":    {bearerChallenge, password, false, -1, "Bearer " + goodAccess, time.Minute},
		"bearer that lasts for ever":     {bearerChallenge, password, false, 1 << 60, "Bearer " + goodAccess, 24 * time.Hour},
		"bearer for everybody":           {bearerChallenge, "", true, 60, "Bearer " + goodAccess, time.Minute},
		"bearer by an identity token":    {bearerChallenge, fmt.Sprintf(`{"identitytoken": %q}`, goodRefresh), false, 600, "Bearer " + goodAccess, 10 * time.Minute},
		"access token of the own secret": {bearerChallenge, fmt.Sprintf(`{"registrytoken": %q}`, goodAccess), false, 0, "Bearer " + goodAccess, 0},
	} {
		t.Run(what, func(t *testing.T) {
			server := newAuthRegistry(t, c.challenge)
			server.anonymous, server.tokenLifetime = c.anonymous, c.life
			var log strings.Builder
			p := puller(server.Host)
			p.Log, p.Now = slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return noon }
			if c.entry != "" {
				p.Credentials = registry.ParseCredentials(map[string]map[string][]byte{
					"regcred": {".dockerconfigjson": fmt.Appendf(nil, `{"auths": {%q: %s}}`, server.Host, c.entry)},
				}, p.Log)
			}
			location, err := p.Locate(t.Context(), []string{server.reference}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(http.Header{"Authorization": {c.want}}, location.Authorization.Header()); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			want := time.Time{}
			if c.expires != 0 {
				want = noon.Add(c.expires)
			}
			if !location.Authorization.Expires.Equal(want) {
				t.Errorf("expires at %s, want %s", location.Authorization.Expires, want)
			}
			layer := location.Layers[0]
			if got := fetchLayer(t, http.DefaultClient, layer, location.Authorization.Header()); got != layer.Digest.String() {
				t.Errorf("with the header: got %s, want the layer %s", got, layer.Digest)
			}
			if got := fetchLayer(t, http.DefaultClient, layer, nil); got != "401 Unauthorized" {
				t.Errorf("without the header: got %s: the registry of this test lets everybody in", got)
			}
			_, secret, _ := strings.Cut(c.want, " ")
			for _, secret := range []string{secret, goodPassword, goodRefresh} {
				if strings.Contains(log.String(), secret) {
					t.Errorf("the log contains a secret:\n%s", log.String())
				}
			}
		})
	}
}

// TestAuthorizationIsSecret checks that only Header returns the content of an authorization.
func TestAuthorizationIsSecret(t *testing.T) {
	server := newAuthRegistry(t, bearerChallenge)
	server.anonymous = true
	location, err := puller(server.Host).Locate(t.Context(), []string{server.reference}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, value := range []any{location, *location, location.Authorization, &location.Authorization} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "value", value)
		if err := json.NewEncoder(&out).Encode(value); err != nil {
			t.Fatal(err)
		}
	}
	if text := out.String(); strings.Contains(text, goodAccess) || strings.Contains(text, hex.EncodeToString([]byte(goodAccess))) {
		t.Errorf("a token is disclosed:\n%s", text)
	}
}

// TestLocations checks that the layers are those of the platform's manifest, in its order, and that none of them is requested.
func TestLocations(t *testing.T) {
	var blobs []string
	server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, digest, found := strings.Cut(r.URL.Path, "/blobs/"); found && r.Method == http.MethodGet {
				blobs = append(blobs, digest)
			}
			next.ServeHTTP(w, r)
		})
	})
	base, top := registrytest.Files{"base": "1"}, registrytest.Files{"top": "2"}
	onARM64 := registrytest.ImageFor(t, "arm64", base, top, base)
	index := registrytest.Index(t, map[string]v1.Image{"amd64": registrytest.Image(t, base), "arm64": onARM64})
	reference := server.PushIndex(t, "team/app:1", index)
	manifest, err := onARM64.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var want []registry.Layer
	for _, layer := range manifest.Layers {
		want = append(want, registry.Layer{
			Digest: layer.Digest, Size: layer.Size, MediaType: types.DockerLayer, URL: "http://" + server.Host + "/v2/team/app/blobs/" + layer.Digest.String(),
		})
	}
	blobs = nil
	location, err := puller(server.Host).Locate(t.Context(), []string{server.Host + "/team/gone:1", reference}, v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, location.Layers); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if location.Digest.String() != registrytest.Digest(t, onARM64) || location.Root.String() != registrytest.Digest(t, index) || location.Reference.String() != reference {
		t.Errorf("located %s from %s by %s, want %s from %s by %s", location.Digest, location.Root, location.Reference,
			registrytest.Digest(t, onARM64), registrytest.Digest(t, index), reference)
	}
	if header := location.Authorization.Header(); header != nil {
		t.Errorf("headers %v for a registry that lets everybody in, want none", header)
	}
	if diff := cmp.Diff([]string{manifest.Config.Digest.String()}, blobs); diff != "" {
		t.Errorf("blobs that were asked for (-want +got), only the configuration says whether it is an image:\n%s", diff)
	}
	if got := fetchLayer(t, http.DefaultClient, location.Layers[1], nil); got != want[1].Digest.String() {
		t.Errorf("got %s where the layer %s should be", got, want[1].Digest)
	}
}

// TestLocationOfImageWithoutLayers checks that an image of only a configuration is valid, and needs no token.
func TestLocationOfImageWithoutLayers(t *testing.T) {
	server := newAuthRegistry(t, bearerChallenge)
	server.open = true
	reference := server.Push(t, "none:1", registrytest.Image(t))
	server.open, server.anonymous = false, true
	location, err := puller(server.Host).Locate(t.Context(), []string{reference}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	if len(location.Layers) != 0 || location.Authorization.Header() != nil || location.Digest.String() != registrytest.Digest(t, registrytest.Image(t)) {
		t.Errorf("got %+v, want the digest without layers and authorization", location)
	}
}

// nest returns an index that contains one index. The descriptor names the platform, unless that is nil.
func nest(index v1.ImageIndex, platform *v1.Platform) v1.ImageIndex {
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Platform: platform}})
}

// TestIndexOfIndexes checks that the image in nested indexes is found, with the same result of Pull and Locate.
func TestIndexOfIndexes(t *testing.T) {
	server, arm64 := registrytest.NewRegistry(t, nil), v1.Platform{OS: "linux", Architecture: "arm64"}
	first, second := registrytest.Image(t, registrytest.Files{"a": "b"}), registrytest.ImageFor(t, "arm64", registrytest.Files{"c": "d"})
	s390x := registrytest.Index(t, map[string]v1.Image{"s390x": registrytest.ImageFor(t, "s390x", registrytest.Files{"e": "f"})})
	onAMD64 := registrytest.Index(t, map[string]v1.Image{"amd64": first})
	onARM64 := registrytest.Index(t, map[string]v1.Image{"arm64": second})
	for what, c := range map[string]struct {
		index    v1.ImageIndex
		platform v1.Platform
		want     v1.Image
	}{
		"said to be for the platform":  {nest(onAMD64, &amd64), amd64, first},
		"a manifest":                   {onAMD64, amd64, first},
		"not said to be for any":       {nest(onARM64, nil), arm64, second},
		"two within each other":        {nest(nest(onARM64, nil), &arm64), arm64, second},
		"one for another beside it":    {mutate.AppendManifests(nest(s390x, nil), mutate.IndexAddendum{Add: onARM64}), arm64, second},
		"one that does not keep to it": {mutate.AppendManifests(nest(s390x, &arm64), mutate.IndexAddendum{Add: onARM64}), arm64, second},
	} {
		t.Run(what, func(t *testing.T) {
			reference := server.PushIndex(t, "app/nested:"+strings.ReplaceAll(what, " ", "-"), c.index)
			pulled, err := puller(server.Host).Pull(t.Context(), []string{reference}, c.platform)
			if err != nil {
				t.Fatal(err)
			}
			located, err := puller(server.Host).Locate(t.Context(), []string{reference}, c.platform)
			if err != nil {
				t.Fatal(err)
			}
			want := registrytest.Digest(t, c.want)
			if pulled.Digest.String() != want || located.Digest.String() != want || located.Root.String() != registrytest.Digest(t, c.index) {
				t.Errorf("pulled %s, located %s of %s, want %s", pulled.Digest, located.Digest, located.Root, want)
			}
			if proven, err := document.Verify(pulled.Root, c.platform, pulled.Documents); err != nil || proven.String() != want {
				t.Errorf("the documents of the pull prove %s, error %v, want %s", proven, err, want)
			}
		})
	}
}

// typed is an image or artifact with an artifact type in the index.
type typed struct {
	v1.Image
	as string
}

func (c typed) ArtifactType() (string, error) { return c.as, nil }

// TestArtifactsInIndexes checks that artifacts beside an image are not taken for it, in any position.
func TestArtifactsInIndexes(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	image, other := registrytest.Image(t, registrytest.Files{"a": "b"}), registrytest.Image(t, registrytest.Files{"c": "d"})
	chart := registrytest.Chart(t)
	untyped, sbom := typed{chart, ""}, typed{registrytest.WithPlatform(t, other, v1.Platform{}), "application/spdx+json"}
	level9 := v1.Platform{OS: "linux", Architecture: "amd64", Variant: "v9"}
	s390x, unknown := v1.Platform{OS: "linux", Architecture: "s390x"}, v1.Platform{OS: "unknown", Architecture: "unknown"}
	of := func(child v1.Image, platform *v1.Platform) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: child, Descriptor: v1.Descriptor{Platform: platform}}
	}
	for what, c := range map[string]struct {
		first, second mutate.IndexAddendum
		want          string // digest, or reason of the failure
	}{
		"an artefact of a type":            {of(chart, nil), of(image, &amd64), registrytest.Digest(t, image)},
		"one that looks like an image":     {of(sbom, nil), of(image, nil), registrytest.Digest(t, image)},
		"one that nodes would run":         {of(sbom, &amd64), of(image, &amd64), registrytest.Digest(t, sbom)},
		"one of no type":                   {of(untyped, nil), of(image, nil), registrytest.Digest(t, image)},
		"one of no type for the platform":  {of(untyped, &amd64), of(image, &amd64), registrytest.Digest(t, image)},
		"a variant that no node has":       {of(other, &level9), of(image, &amd64), registrytest.Digest(t, image)},
		"only a variant that no node has":  {of(other, &level9), of(chart, nil), workerapi.ReasonPlatformMismatch},
		"images that say themselves":       {of(registrytest.WithPlatform(t, other, s390x), nil), of(image, nil), registrytest.Digest(t, image)},
		"an image for another platform":    {of(registrytest.WithPlatform(t, other, s390x), nil), of(chart, nil), workerapi.ReasonPlatformMismatch},
		"an attestation":                   {of(other, &unknown), of(image, &amd64), registrytest.Digest(t, image)},
		"an image without a platform":      {of(other, nil), of(image, &amd64), registrytest.Digest(t, image)},
		"an image of another type":         {of(chart, nil), of(typed{image, "application/x"}, &amd64), registrytest.Digest(t, image)},
		"an image of its type":             {of(other, nil), of(typed{image, string(types.OCIConfigJSON)}, &amd64), registrytest.Digest(t, image)},
		"nothing but artefacts":            {of(chart, nil), of(untyped, &amd64), workerapi.ReasonNotAnImage},
		"an artefact and another platform": {of(chart, nil), of(image, &s390x), workerapi.ReasonPlatformMismatch},
	} {
		t.Run(what, func(t *testing.T) {
			reference := server.PushIndex(t, "app/artefacts:"+strings.ReplaceAll(what, " ", "-"), mutate.AppendManifests(empty.Index, c.first, c.second))
			located, err := puller(server.Host).Locate(t.Context(), []string{reference}, amd64)
			got := reason(err)
			if err == nil {
				got = located.Digest.String()
			}
			if got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// TestNoReference checks that an empty list of references is a failure.
func TestNoReference(t *testing.T) {
	_, err := puller("registry.example.com").Locate(t.Context(), nil, amd64)
	expectFailure(t, err, workerapi.Failure{Reason: workerapi.ReasonImageNotFound})
}

// TestLocateRejectsNonImages checks the reasons for content that is no image. All of these failures are final.
func TestLocateRejectsNonImages(t *testing.T) {
	server := registrytest.NewRegistry(t, nil)
	image := registrytest.Image(t, registrytest.Files{"a": "b"}, registrytest.Files{"c": "d"})
	honest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	index := registrytest.Index(t, map[string]v1.Image{"amd64": image})
	second := func(change func(*v1.Descriptor)) string {
		return server.PushModified(t, "app/changed:1", image, func(m *v1.Manifest) { change(&m.Layers[1]) })
	}
	ofType := func(mediaType types.MediaType) func(*v1.Descriptor) {
		return func(layer *v1.Descriptor) { layer.MediaType = mediaType }
	}
	missing := func(mediaType types.MediaType) func(*v1.Descriptor) {
		return func(layer *v1.Descriptor) {
			layer.MediaType, layer.Digest = mediaType, hash(t, "sha256:"+strings.Repeat("0", 64))
		}
	}
	for what, c := range map[string]struct {
		push   func() string
		reason string
		want   string // in the message
	}{
		"an index without the platform": {
			func() string {
				return server.PushIndex(t, "app/index:1", registrytest.Index(t, map[string]v1.Image{"s390x": image}))
			},
			workerapi.ReasonPlatformMismatch, "linux/s390x",
		},
		"too deep an index of indexes": {
			func() string { return server.PushIndex(t, "app/nested:1", nest(nest(nest(index, nil), &amd64), nil)) }, workerapi.ReasonNotAnImage, "one index of manifests",
		},
		"an index of too many": {func() string {
			many := v1.ImageIndex(empty.Index)
			for range 20 {
				other := registrytest.Index(t, map[string]v1.Image{"s390x": registrytest.Image(t, registrytest.Files{"n": rand.Text()})})
				many = mutate.AppendManifests(many, mutate.IndexAddendum{Add: other})
			}
			return server.PushIndex(t, "app/many:1", mutate.AppendManifests(many, mutate.IndexAddendum{Add: index}))
		}, workerapi.ReasonNotAnImage, "16 documents"},
		"an index of indexes without the platform": {
			func() string {
				return server.PushIndex(t, "app/nested:2", nest(registrytest.Index(t, map[string]v1.Image{"s390x": image}), nil))
			},
			workerapi.ReasonPlatformMismatch, "linux/s390x",
		},
		"schema 1": {func() string {
			return server.PushManifest(t, "app/schema1:1", types.DockerManifestSchema1Signed, []byte(`{"schemaVersion": 1}`))
		}, workerapi.ReasonNotAnImage, "schema 1"},
		"an index that is served as a manifest": {func() string {
			return server.PushManifest(t, "app/kind:1", types.OCIManifestSchema1, []byte(`{"schemaVersion": 2, "manifests": []}`))
		}, workerapi.ReasonNotAnImage, "but the document is an index"},
		"a manifest that is served as an index": {func() string {
			raw, err := image.RawManifest()
			if err != nil {
				t.Fatal(err)
			}
			return server.PushManifest(t, "app/kind:2", types.OCIImageIndex, raw)
		}, workerapi.ReasonNotAnImage, "but the document is not an index"},
		"a Helm chart": {func() string { return server.Push(t, "app/chart:1", registrytest.Chart(t)) }, workerapi.ReasonNotAnImage, "helm.config"},
		"an attestation": {func() string {
			return server.Push(t, "app/attestation:1", registrytest.RawImage(t, "application/vnd.in-toto+json", []byte("{}")))
		}, workerapi.ReasonNotAnImage, "layer 1 of 1"},
		"a signature": {func() string {
			return server.Push(t, "app/signature:1", registrytest.RawImage(t, "application/vnd.dev.cosign.simplesigning.v1+json", []byte("{}")))
		}, workerapi.ReasonNotAnImage, "simplesigning"},
		"a foreign layer":             {func() string { return second(missing(types.DockerForeignLayer)) }, workerapi.ReasonForeignLayer, "not in the registry"},
		"a layer not to be passed on": {func() string { return second(missing(types.OCIRestrictedLayer)) }, workerapi.ReasonForeignLayer, "not in the registry"},
		"a layer of an odd type":      {func() string { return second(ofType("application/json")) }, workerapi.ReasonNotAnImage, "layer 2 of 2"},
		"a layer without a type":      {func() string { return second(ofType("")) }, workerapi.ReasonNotAnImage, "layer 2 of 2"},
		"a layer without size":        {func() string { return second(func(layer *v1.Descriptor) { layer.Size = 0 }) }, workerapi.ReasonNotAnImage, "it has no size"},
		"a layer of negative size":    {func() string { return second(func(layer *v1.Descriptor) { layer.Size = -1 }) }, workerapi.ReasonNotAnImage, "it has no size"},
		"a layer without digest": {func() string {
			server.Push(t, "app/changed:1", image)
			return server.PushManifest(t, "app/changed:1", types.DockerManifestSchema2, fmt.Appendf(nil,
				`{"schemaVersion": 2, "config": {"mediaType": %q, "size": %d, "digest": %q}, "layers": [{"mediaType": %q, "size": 2}]}`,
				honest.Config.MediaType, honest.Config.Size, honest.Config.Digest, types.DockerLayer))
		}, workerapi.ReasonNotAnImage, "it has no digest"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := puller(server.Host).Locate(t.Context(), []string{c.push()}, amd64)
			expectFailure(t, err, workerapi.Failure{Reason: c.reason})
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the message does not say %q: %v", c.want, err)
			}
		})
	}
}

// expectFailure compares a failure without its message.
func expectFailure(t *testing.T, err error, want workerapi.Failure) {
	t.Helper()
	var known *failure.Error
	if !errors.As(err, &known) {
		t.Fatalf("got error %v without a reason, want %s", err, want.Reason)
	}
	got := failure.Describe(err, "none")
	got.Message = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v\nfailure (-want +got):\n%s", err, diff)
	}
}

// TestLocateFailureReasons checks the reasons for bad answers of a registry. None of these failures is final.
func TestLocateFailureReasons(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<html>Sign in</html>")
	}
	digest := "@sha256:" + strings.Repeat("a", 64)
	for what, c := range map[string]struct {
		answer    http.HandlerFunc
		reference string
		want      workerapi.Failure
	}{
		"401":                        {answerStatus(http.StatusUnauthorized), ":1", workerapi.Failure{Reason: workerapi.ReasonUnauthorized}},
		"404":                        {answerStatus(http.StatusNotFound), ":1", workerapi.Failure{Reason: workerapi.ReasonImageNotFound}},
		"501":                        {answerStatus(http.StatusNotImplemented), ":1", workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"a page":                     {page, ":1", workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"a page, asked for a digest": {page, digest, workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"another manifest": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			fmt.Fprint(w, "{}")
		}, digest, workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"429": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		}, ":1", workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 120, Registry: "HOST"}},
	} {
		t.Run(what, func(t *testing.T) {
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.Contains(r.URL.Path, "/manifests/") {
						c.answer(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			_, err := puller(server.Host).Locate(t.Context(), []string{server.Host + "/app" + c.reference}, amd64)
			c.want.Registry = strings.ReplaceAll(c.want.Registry, "HOST", server.Host)
			expectFailure(t, err, c.want)
		})
	}
	t.Run("plain HTTP that is not listed", func(t *testing.T) {
		server := registrytest.NewRegistry(t, nil)
		_, err := puller().Locate(t.Context(), []string{server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))}, amd64)
		expectFailure(t, err, workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail})
	})
}

// TestNoTokenForLayers checks the reasons if a registry serves the manifest, but gives no token for the layers.
func TestNoTokenForLayers(t *testing.T) {
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		want   workerapi.Failure
	}{
		"refused": {answerStatus(http.StatusForbidden), workerapi.Failure{Reason: workerapi.ReasonUnauthorized}},
		"away":    {answerStatus(http.StatusNotImplemented), workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
		"no token": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"refresh_token": "s3cret-of-the-server"}`)
		},
			workerapi.Failure{Reason: workerapi.ReasonUnauthorized}},
		"too large a token": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"token": %q}`, strings.Repeat("s3cret", 20<<10))
		},
			workerapi.Failure{Reason: workerapi.ReasonCatalogFailed}},
	} {
		t.Run(what, func(t *testing.T) {
			tokens := 0
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Path == "/token" && tokens > 0:
						c.answer(w, r)
					case r.URL.Path == "/token":
						tokens++
						fmt.Fprint(w, `{"token": "first"}`)
					case r.URL.Path == "/v2/":
						w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
						w.WriteHeader(http.StatusUnauthorized)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			reference := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
			tokens = 0
			_, err := puller(server.Host).Locate(t.Context(), []string{reference}, amd64)
			expectFailure(t, err, c.want)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a secret is disclosed: %v", err)
			}
		})
	}
}

// TestLocationsInMirrors checks that layers are located in the mirror that answers, with the credentials for that mirror.
func TestLocationsInMirrors(t *testing.T) {
	m := newMirrored(t, answerStatus(http.StatusNotFound))
	location, err := m.puller().Locate(t.Context(), []string{m.reference}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	layer := location.Layers[0]
	if want := "http://" + m.second.Host + "/v2/hub/team/app/blobs/" + layer.Digest.String(); layer.URL != want || location.Mirror != m.second.Host+"/hub" {
		t.Errorf("layer at %s of mirror %q, want %s", layer.URL, location.Mirror, want)
	}
	if got := fetchLayer(t, http.DefaultClient, layer, location.Authorization.Header()); got != layer.Digest.String() {
		t.Errorf("got %s from the mirror, want the layer %s", got, layer.Digest)
	}
	t.Run("one that did not deliver is avoided", func(t *testing.T) {
		p := m.puller()
		p.ExcludedMirrors = []string{location.Mirror}
		again, err := p.Locate(t.Context(), []string{m.reference}, amd64)
		if err != nil || again.Mirror != "" || !strings.HasPrefix(again.Layers[0].URL, "http://"+m.registry.Host+"/v2/team/app/blobs/") {
			t.Errorf("got %+v and error %v, want the layers in the registry itself", again, err)
		}
	})
}

// TestMirrorFailsAfterManifest checks that a mirror is skipped if it fails after it has served the manifest.
func TestMirrorFailsAfterManifest(t *testing.T) {
	pings := 0
	m := newMirrored(t, nil)
	fading := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				if pings++; pings > 2 {
					w.WriteHeader(http.StatusNotImplemented)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	fading.Push(t, "team/app:1", m.image) // the first ping
	p := puller(fading.Host)
	p.Registries = append(p.Registries, workerapi.Registry{Host: m.registry.Host, PlainHTTP: true, Mirrors: []string{fading.Host}})
	location, err := p.Locate(t.Context(), []string{m.reference}, amd64)
	if err != nil || location.Mirror != "" || !slices.Contains(p.ExcludedMirrors, fading.Host) {
		t.Errorf("got %+v and error %v, want the registry itself after the mirror", location, err)
	}
}

// TestLocationsOverTLS checks that a host with its own CA is located over HTTPS, even if plain HTTP is allowed for it.
func TestLocationsOverTLS(t *testing.T) {
	certificate := selfSigned()
	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	host := serveTLS(t, certificate, image, unwrapped)
	bundle := pemOf(certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for what, settings := range map[string]workerapi.Registry{
		"private authority":                  {Host: host, CABundle: bundle},
		"private authority, plain HTTP also": {Host: host, CABundle: bundle, PlainHTTP: true},
	} {
		t.Run(what, func(t *testing.T) {
			p := puller()
			p.Registries = []workerapi.Registry{settings}
			transport, err := registry.NewTransport(p.Registries)
			if err != nil {
				t.Fatal(err)
			}
			p.Transport = transport
			location, err := p.Locate(t.Context(), []string{host + "/app:1"}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			layer := location.Layers[0]
			if !strings.HasPrefix(layer.URL, "https://"+host+"/v2/app/blobs/") {
				t.Errorf("layer at %s, want https", layer.URL)
			}
			if got := fetchLayer(t, client, layer, nil); got != layer.Digest.String() {
				t.Errorf("got %s, want the layer %s", got, layer.Digest)
			}
		})
	}
	t.Run("unknown authority", func(t *testing.T) {
		_, err := puller().Locate(t.Context(), []string{host + "/app:1"}, amd64)
		expectFailure(t, err, workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail})
	})
}
