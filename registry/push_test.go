package registry_test

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// pushAs pushes an image as app:1 to a registry that requires a user.
func pushAs(t *testing.T, host, user string, image v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(host+"/app:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: user, Password: "password"})); err != nil {
		t.Fatal(err)
	}
}
