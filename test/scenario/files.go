package scenario

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"text/template"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

//go:embed manifests operator
var templates embed.FS

// render executes a template of this package.
func render(file string, values any) (string, error) {
	parsed, err := template.New(path.Base(file)).Option("missingkey=error").ParseFS(templates, file)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, values); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return text.String(), nil
}

// filesBelow returns all files of a directory with their modification times, by their paths below target in an image.
func filesBelow(dir fs.FS, target string) (map[string]build.File, error) {
	files := map[string]build.File{}
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		files[path.Join(target, name)] = build.File{Content: content, Modified: info.ModTime()}
		return err
	})
	return files, err
}
