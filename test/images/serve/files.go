package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// withoutETag is the file that is served without an ETag. Clair 4.9 would request the file with the ETag again and treat the answer "not
// modified" as an empty list (claircore v1.5.48, updater/osv/osv.go).
const withoutETag = "ecosystems.txt"

// serveFiles serves the files of a tree, each with an ETag of its content.
func serveFiles(tree fs.FS) http.Handler {
	files := http.FileServerFS(tree)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if content, err := fs.ReadFile(tree, name); err == nil && path.Base(name) != withoutETag {
			sum := sha256.Sum256(content)
			w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		}
		files.ServeHTTP(w, r)
	})
}
