package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// push uploads all images, tagged with the version, and prints the reference of each. They go where images.json says, or to another
// registry, for trying it out. What arrives must be what images.json names.
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
		// Before anything is pushed: a tag is seen by users at once.
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
