package ingest

import (
	"context"
	"errors"
	"net/http"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// uploadedSBOM returns the uploaded SBOM that a Job may use. The Job's policy names exactly one upload, of one namespace.
func (i *Ingest) uploadedSBOM(ctx context.Context, job store.Job) (store.UploadedSBOM, error) {
	if !store.IsUpload(job.SBOMPolicy) {
		return store.UploadedSBOM{}, refuse(http.StatusForbidden, "this Job may not use an uploaded SBOM")
	}
	uploaded, err := i.Store.UploadedSBOMByPolicy(ctx, job.SBOMPolicy)
	// The Job's scope is the namespace of its policy. Should that ever differ, one namespace's SBOM must not serve another.
	if errors.Is(err, store.ErrNotFound) || err == nil && store.Scope(uploaded.Namespace) != job.Scope {
		return store.UploadedSBOM{}, refuse(http.StatusGone, "the uploaded SBOM was replaced or withdrawn meanwhile")
	}
	return uploaded, err
}

// getUploadedSBOM sends the uploaded SBOM of the Job's image.
func (i *Ingest) getUploadedSBOM(w http.ResponseWriter, r *http.Request, job store.Job) error {
	uploaded, err := i.uploadedSBOM(r.Context(), job)
	if err != nil {
		return err
	}
	content, size, err := i.Store.OpenUploadedSBOM(r.Context(), uploaded)
	if err != nil {
		return err
	}
	i.sendArtifact(w, content, size, workerapi.ContentTypeUploadedSBOM)
	return nil
}
