package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// push uploads all images, tagged with the version, and prints the reference of each. The target is the registry in images.json, or the
// given registry for trials. The digests must match images.json.
func (r release) push(ctx context.Context, registry string, out io.Writer) error {
	record, err := r.record()
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(programs, packaged) {
		repository, digest, _ := strings.Cut(record[name], "@")
		if registry != "" {
			repository = registry + "/" + name
		}
		image, err := build.Load(r.path("images", name))
		if err != nil {
			return err
		}
		// The digest is checked before the push, since a tag is visible to users at once.
		got, err := image.Digest()
		if err != nil {
			return err
		}
		if got.String() != digest {
			return fmt.Errorf("%s has the digest %s; %s says %q", name, got, recordFile, record[name])
		}
		pushed, err := build.Push(ctx, repository+":"+r.version, image)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, pushed)
	}
	return nil
}
