// Package ui serves the web UI: one HTML document that holds its scripts and styles. The sources are in src; "make ui" builds the document
// into dist, where Go embeds it. A program that was built without it serves a page that says so.
//
// The package knows nothing of the REST API. It only keeps the API's paths apart from those of the UI.
package ui

import (
	"embed"
	"errors"
	"io/fs"
)

// dist holds index.html and, compressed, index.html.br. Without "make ui" it holds neither.
//
//go:embed all:dist
var dist embed.FS

// routes lists the paths of the pages, as patterns of http.ServeMux. The script reads the same list.
//
//go:embed routes.json
var routes []byte

// built returns the document and its Brotli encoding, or nil if the program was built without them.
func built() (html, brotli []byte, err error) {
	html, err = dist.ReadFile("dist/index.html")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	brotli, err = dist.ReadFile("dist/index.html.br")
	return html, brotli, err
}
