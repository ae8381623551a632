package main

import (
	"fmt"
	"io"
	"strings"
)

// listSBOMs prints one line for each platform of each program: the reference of the platform's image by digest, and the file of its
// SBOM. publish.sh attests the SBOM to the image. registry replaces the registry and path in images.json; empty keeps them.
func (r release) listSBOMs(registry string, out io.Writer) error {
	record, err := r.record()
	if err != nil {
		return err
	}
	for _, name := range programs {
		repository, _, _ := strings.Cut(record[name], "@")
		if registry != "" {
			repository = registry + "/" + name
		}
		index, err := r.index(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, platform := range platforms {
			image, err := imageFor(index, platform)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			digest, err := image.Digest()
			if err != nil {
				return fmt.Errorf("%s for %s: %w", name, platform, err)
			}
			fmt.Fprintf(out, "%s@%s %s\n", repository, digest, r.path(sbomFile(name, platform.OS, platform.Architecture)))
		}
	}
	return nil
}
