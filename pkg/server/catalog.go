package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxText bounds what a worker says in words about an image.
const maxText = 256

// artifacts are the files that make a catalogue.
var artifacts = []store.Artifact{store.ArtifactSBOM, store.ArtifactMatchInput}

// errBusy answers a second request of a Job: its worker sends one after the other.
var errBusy = putOff(http.StatusTooManyRequests, time.Second, "another upload of this Job is not finished")

// putArtifact receives one of the two files of a catalogue. It replaces an earlier try of the same Job.
func (i *Ingest) putArtifact(artifact store.Artifact) func(http.ResponseWriter, *http.Request, store.Job) error {
	return func(w http.ResponseWriter, r *http.Request, job store.Job) error {
		defer drain(r.Body)
		if !i.spool.enter(job.UID) {
			return errBusy
		}
		defer i.spool.leave(job.UID)
		allowReading(w, artifactTime)
		body := http.MaxBytesReader(w, r.Body, i.Limits.Artifact)
		if err := i.spool.receive(uploadKey{job.UID, artifact}, body, r.Header.Get(workerapi.DigestHeader), i.Limits.ArtifactContent); err != nil {
			return err
		}
		allReceived(w)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// postResult makes both files visible together, under the image that the manager's record names. A refused
// result takes its files with it; those of one that could not be stored stay for the next try.
func (i *Ingest) postResult(w http.ResponseWriter, r *http.Request, job store.Job) error {
	if !i.spool.enter(job.UID) {
		return errBusy
	}
	defer i.spool.leave(job.UID)
	var result workerapi.CatalogResult
	if err := i.decode(w, r, &result); err != nil {
		return err
	}
	if err := errors.Join(checkResult(result, job), i.checkUploads(result, job)); err != nil {
		i.spool.discard(job.UID)
		return err
	}
	if err := i.saveCatalogue(r.Context(), result, job); err != nil {
		return err
	}
	i.spool.discard(job.UID)
	i.Log.Info("Cataloged an image", "image", job.Key.String(), "scope", job.Scope, "platformDigest", result.PlatformDigest, "packages", result.Packages)
	i.Engine.Catalogued(r.Context(), job)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkUploads refuses a result about other files than those that were received.
func (i *Ingest) checkUploads(result workerapi.CatalogResult, job store.Job) error {
	said := map[store.Artifact]string{store.ArtifactSBOM: result.SBOMDigest, store.ArtifactMatchInput: result.MatchInputDigest}
	for _, artifact := range artifacts {
		switch received := i.spool.digest(job.UID, artifact); received {
		case "": // first, so that saying nothing about a missing file is no agreement
			return refuse(http.StatusConflict, "%s was not uploaded (or the manager was restarted): upload it again", artifact)
		case said[artifact]:
		default:
			return refuse(http.StatusConflict, "%s: the result speaks of %q, but %s was uploaded: upload it again", artifact, said[artifact], received)
		}
	}
	return nil
}

// saveCatalogue moves the Job's files into the store, both or none.
func (i *Ingest) saveCatalogue(ctx context.Context, result workerapi.CatalogResult, job store.Job) error {
	files := map[store.Artifact]io.Reader{}
	for _, artifact := range artifacts {
		file, err := os.Open(i.spool.path(job.UID, artifact))
		if err != nil {
			return err
		}
		defer file.Close()
		files[artifact] = file
	}
	return i.Store.SaveCatalogue(ctx, store.Catalogued{
		Engine: i.Engine.Engine(), Key: job.Key, Scope: job.Scope, PlatformDigest: result.PlatformDigest,
		Distro: clip(result.Distro), Packages: result.Packages, Tool: clip(result.Tool), CataloguedAt: i.Clock.Now(),
	}, files)
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
