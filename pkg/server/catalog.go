package server

import (
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxText bounds what a worker says in words about an image.
const maxText = 256

// putArtifact receives one of the two files of a catalogue. It replaces an earlier try of the same Job.
func (i *Ingest) putArtifact(artifact store.Artifact) func(http.ResponseWriter, *http.Request, store.Job) error {
	return func(w http.ResponseWriter, r *http.Request, job store.Job) error {
		defer drain(r.Body)
		path := i.spool.path(job.UID, string(artifact))
		digest, err := i.spool.receive(path, http.MaxBytesReader(w, r.Body, i.Limits.Artifact))
		if err != nil {
			return err
		}
		if want := r.Header.Get(workerapi.DigestHeader); digest != want {
			i.spool.discard(path)
			return refuse(http.StatusBadRequest, "the body has the digest %s, but %s was announced: it was damaged on the way", digest, want)
		}
		if err := verifyZstd(path, i.Limits.ArtifactContent); err != nil {
			i.spool.discard(path)
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// postResult makes both files visible together, under the image that the manager's record names.
func (i *Ingest) postResult(w http.ResponseWriter, r *http.Request, job store.Job) error {
	var result workerapi.CatalogResult
	if err := i.decode(w, r, &result); err != nil {
		return err
	}
	if err := checkResult(result, job); err != nil {
		return err
	}
	paths := map[store.Artifact]string{}
	files := map[store.Artifact]io.Reader{}
	for _, artifact := range []store.Artifact{store.ArtifactSBOM, store.ArtifactMatchInput} {
		paths[artifact] = i.spool.path(job.UID, string(artifact))
		file, err := os.Open(paths[artifact])
		if os.IsNotExist(err) {
			return refuse(http.StatusConflict, "%s was not uploaded (or the manager was restarted): upload it again", artifact)
		}
		if err != nil {
			return err
		}
		defer file.Close()
		files[artifact] = file
	}
	err := i.Store.SaveCatalogue(r.Context(), store.Catalogued{
		Key: job.Key, Scope: job.Scope, PlatformDigest: result.PlatformDigest,
		Distro: clip(result.Distro), Packages: result.Packages, Tool: clip(result.Tool), CataloguedAt: i.Clock.Now(),
	}, files)
	if err != nil {
		return err
	}
	i.spool.discard(paths[store.ArtifactSBOM], paths[store.ArtifactMatchInput])
	i.Log.Info("Cataloged an image", "image", job.Key.String(), "scope", job.Scope, "platformDigest", result.PlatformDigest, "packages", result.Packages)
	i.Engine.Catalogued(r.Context(), job)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkResult refuses what cannot be about the Job's image.
func checkResult(result workerapi.CatalogResult, job store.Job) error {
	if !image.ValidDigest(result.PlatformDigest) {
		return refuse(http.StatusUnprocessableEntity, "platformDigest: not a SHA-256 digest")
	}
	if result.Packages < 0 {
		return refuse(http.StatusUnprocessableEntity, "packages: less than none")
	}
	platform, err := image.ParsePlatform(result.Platform)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "platform: %v", err)
	}
	if platform.OS != job.Key.Platform.OS || platform.Architecture != job.Key.Platform.Architecture {
		return refuse(http.StatusUnprocessableEntity, "platform: %s was cataloged, %s runs", platform, job.Key.Platform)
	}
	return nil
}

// clip cuts a text, and what is left of a character that does not fit.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }
