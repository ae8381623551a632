package registry_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/registry"
)

// secrets writes pull secrets to a directory as they are mounted. The name of a file is <secret>/<key>.
func secrets(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// users returns the users whose credentials are tried for a repository, in order.
func users(t *testing.T, c registry.Credentials, repository string) []string {
	t.Helper()
	repo, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, auth := range c.For(repo) {
		config, err := auth.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, config.Username+config.IdentityToken)
	}
	return names
}

func basic(user string) string {
	return `{"auth": "` + base64.StdEncoding.EncodeToString([]byte(user+":password")) + `"}`
}

func TestCredentialsBelongToTheirRegistry(t *testing.T) {
	for what, c := range map[string]struct {
		keys       map[string]string // key of "auths" → user
		repository string
		want       []string
	}{
		"the same host":                     {map[string]string{"registry.example": "a"}, "registry.example/app", []string{"a"}},
		"another host":                      {map[string]string{"registry.example": "a"}, "registry.other/app", nil},
		"a host that ends alike":            {map[string]string{"example.com": "a"}, "evil-example.com/app", nil},
		"a host that begins alike":          {map[string]string{"registry.example": "a"}, "registry.example.evil.com/app", nil},
		"a sub-domain":                      {map[string]string{"example.com": "a"}, "registry.example.com/app", nil},
		"the same port":                     {map[string]string{"registry.example:5000": "a"}, "registry.example:5000/app", []string{"a"}},
		"another port":                      {map[string]string{"registry.example:5000": "a"}, "registry.example:5001/app", nil},
		"no port in the secret":             {map[string]string{"registry.example": "a"}, "registry.example:5000/app", nil},
		"scheme and version in the key":     {map[string]string{"https://registry.example/v2/": "a"}, "registry.example/app", []string{"a"}},
		"Docker Hub's long name":            {map[string]string{"https://index.docker.io/v1/": "a"}, "docker.io/library/app", []string{"a"}},
		"Docker Hub's short name":           {map[string]string{"docker.io": "a"}, "library/app", []string{"a"}},
		"Docker Hub's other name":           {map[string]string{"index.docker.io": "a"}, "docker.io/team/app", []string{"a"}},
		"a wildcard for Docker Hub":         {map[string]string{"*.docker.io": "a"}, "library/app", []string{"a"}},
		"a wildcard":                        {map[string]string{"*.example.com": "a"}, "registry.example.com/app", []string{"a"}},
		"a wildcard does not span labels":   {map[string]string{"*.example.com": "a"}, "a.b.example.com/app", nil},
		"a repository path":                 {map[string]string{"registry.example/team": "a"}, "registry.example/team/app", []string{"a"}},
		"another repository path":           {map[string]string{"registry.example/team": "a"}, "registry.example/other/app", nil},
		"a path ends at a slash":            {map[string]string{"registry.example/team": "a"}, "registry.example/teams/app", nil},
		"the most precise first, all tried": {map[string]string{"registry.example": "a", "registry.example/team": "b"}, "registry.example/team/app", []string{"b", "a"}},
	} {
		t.Run(what, func(t *testing.T) {
			var auths []string
			for key, user := range c.keys {
				auths = append(auths, `"`+key+`": `+basic(user))
			}
			dir := secrets(t, map[string]string{"pull/.dockerconfigjson": `{"auths": {` + strings.Join(auths, ",") + `}}`})
			credentials, err := registry.LoadCredentials(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, users(t, credentials, c.repository)); diff != "" {
				t.Errorf("users tried for %s (-want +got):\n%s", c.repository, diff)
			}
		})
	}
}

func TestLoadCredentials(t *testing.T) {
	dir := secrets(t, map[string]string{
		"new/.dockerconfigjson":      `{"auths": {"registry.example": {"username": "new", "password": "p"}}, "credHelpers": {"x": "y"}}`,
		"old/.dockercfg":             `{"registry.example": {"username": "old", "password": "p", "email": "e"}}`,
		"token/.dockerconfigjson":    `{"auths": {"registry.example": {"identitytoken": "token"}}}`,
		"part/.dockerconfigjson":     `{"auths": {"registry.example": {"auth": "%%%s3cret"}, "registry.example/team": ` + basic("part") + `}}`,
		"broken/.dockerconfigjson":   `{"auths": "s3cret"}`,
		"empty/.dockerconfigjson":    `{}`,
		"other-kind/password":        `s3cret`,
		"large/.dockerconfigjson":    `{"auths":{` + strings.Repeat(" ", 2<<20) + `}}`,
		".hidden-file":               `not a directory`,
		"unmounted/..data/something": ``,
	})
	var log bytes.Buffer
	credentials, err := registry.LoadCredentials(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"part", "new", "old", "token"}, users(t, credentials, "registry.example/team/app")); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	for _, secret := range []string{"part", "broken", "empty", "other-kind", "large", "unmounted"} {
		if !strings.Contains(log.String(), `only a part of it" secret=`+secret) {
			t.Errorf("the log does not say that secret %s is not usable, or only a part of it", secret)
		}
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("the log holds the content of a secret:\n%s", log.String())
	}
}

func TestNoPullSecrets(t *testing.T) {
	credentials, err := registry.LoadCredentials(filepath.Join(t.TempDir(), "missing"), slog.New(slog.DiscardHandler))
	if got := users(t, credentials, "registry.example/app"); err != nil || len(got) != 0 {
		t.Errorf("got credentials of %v and %v, want none and no error", got, err)
	}
}

// TestParseCredentials checks that Secrets in memory are read in the same way as mounted ones.
func TestParseCredentials(t *testing.T) {
	var log bytes.Buffer
	credentials := registry.ParseCredentials(map[string]map[string][]byte{
		"b-new":      {".dockerconfigjson": []byte(`{"auths": {"registry.example": {"username": "new", "password": "p"}}}`)},
		"a-old":      {".dockercfg": []byte(`{"https://registry.example/v1/": {"username": "old", "password": "p"}}`)},
		"part":       {".dockerconfigjson": []byte(`{"auths": {"registry.example": {"auth": "%%%s3cret"}, "registry.example/team": ` + basic("part") + `}}`)},
		"missing":    nil,
		"no/name":    nil,
		"other-kind": {"password": []byte("s3cret")},
		"broken":     {".dockerconfigjson": []byte("s3cret")},
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if diff := cmp.Diff([]string{"part", "old", "new"}, users(t, credentials, "registry.example/team/app")); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	for secret, problem := range map[string]string{
		"missing": "missing or empty", "no/name": "not a name of a Secret", "other-kind": "it has neither .dockerconfigjson nor .dockercfg",
		"broken": ".dockerconfigjson is not valid JSON of a Docker configuration", "part": "an entry of .dockerconfigjson has no readable credentials",
	} {
		if !strings.Contains(log.String(), `secret=`+secret+` problem="`+problem) {
			t.Errorf("the log does not say of secret %s: %s", secret, problem)
		}
	}
	if text := log.String() + fmt.Sprintf("%v %+v %#v", credentials, credentials, credentials.For(mustRepository(t))); strings.Contains(text, "s3cret") || strings.Contains(text, `"p"`) {
		t.Errorf("the content of a secret is disclosed:\n%s", text)
	}
}

// TestUserInKey checks that a user in the address of a registry is no part of its host.
func TestUserInKey(t *testing.T) {
	var log bytes.Buffer
	credentials := registry.ParseCredentials(map[string]map[string][]byte{
		"pull":     {".dockerconfigjson": []byte(`{"auths": {"https://robot:s3cret@registry.example/v2/": ` + basic("robot") + `}}`)},
		"unusable": {".dockerconfigjson": []byte(`{"auths": {"https://robot:s3cret@registry.example": {"auth": "%%%"}}}`)},
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if diff := cmp.Diff([]string{"robot"}, users(t, credentials, "registry.example/team/app")); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	if text := log.String() + fmt.Sprintf("%v %+v %#v", credentials, credentials, credentials.For(mustRepository(t))); strings.Contains(text, "s3cret") {
		t.Errorf("the password in the address is disclosed:\n%s", text)
	}
}

func mustRepository(t *testing.T) name.Repository {
	t.Helper()
	repository, err := name.NewRepository("registry.example/team/app")
	if err != nil {
		t.Fatal(err)
	}
	return repository
}
