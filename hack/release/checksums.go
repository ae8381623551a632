package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksumsFile is the name of the file with the checksums, in the format of sha256sum ("sha256sum --check SHA256SUMS").
const checksumsFile = "SHA256SUMS"

// published are the patterns of the files that a release publishes. Images and the catalog go to a registry; their digests are in
// images.json.
var published = []string{"*.yaml", "*.tgz", "*.tar.gz", "images.json", "sbom/*.json"}

// files returns the published files, relative to the release's directory and sorted.
func (r release) files() ([]string, error) {
	var files []string
	for _, pattern := range published {
		found, err := filepath.Glob(r.path(pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			relative, err := filepath.Rel(r.dir, file)
			if err != nil {
				return nil, err
			}
			files = append(files, filepath.ToSlash(relative))
		}
	}
	slices.Sort(files)
	return files, nil
}

// checksums returns the content of the file with the checksums.
func (r release) checksums() (string, error) {
	files, err := r.files()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(r.path(file))
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(sum[:]), file)
	}
	return text.String(), nil
}

func (r release) writeChecksums() error {
	text, err := r.checksums()
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(checksumsFile), []byte(text), 0o644)
}
