package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	imagedocument "github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Names of the parts of an upload.
const (
	partManifest = "manifest"
	partSBOM     = "sbom"
)

// maxPlatformBytes bounds the platform that an index names: the store keeps it beside the SBOM.
const maxPlatformBytes = 64

// PutUploadedSBOM implements restv1.ServerInterface.
func (h handlers) PutUploadedSBOM(w http.ResponseWriter, r *http.Request, namespace, digest string, params restv1.PutUploadedSBOMParams) {
	saved, err := h.api.putUpload(w, r, store.UploadedSBOM{Namespace: namespace, Digest: digest}, string(ptr.Deref(params.ContentEncoding, "")))
	if err != nil {
		h.api.writeError(w, r, err)
		return
	}
	if saved.Unchanged {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusOK
	if saved.First {
		status = http.StatusCreated
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// If the caller is gone, the SBOM is saved anyway.
	_ = json.NewEncoder(w).Encode(restv1.SavedSBOM{Platform: saved.Platform, PlatformDigest: saved.PlatformDigest})
}

// PutUploadedSBOM implements restv1.StrictServerInterface. It is never called: handlers reads the body as a stream.
func (a operations) PutUploadedSBOM(context.Context, restv1.PutUploadedSBOMRequestObject) (restv1.PutUploadedSBOMResponseObject, error) {
	return nil, errors.New("the body is read as a stream")
}

// putUpload saves the SBOM in a request's body for the image that u names.
func (a *API) putUpload(w http.ResponseWriter, r *http.Request, u store.UploadedSBOM, encoding string) (saved store.SavedUpload, err error) {
	ctx, user := r.Context(), callerOf(r.Context()).user
	if err := a.authorizer.requireAccess(ctx, user, verbUpdate, resourceSBOMs, u.Namespace, ""); err != nil {
		return saved, err
	}
	mediaType, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/form-data" || parameters["boundary"] == "" {
		return saved, newProblem(restv1.ReasonUnsupportedMediaType, "Content-Type must be multipart/form-data with a boundary, as curl --form sends it")
	}
	release, err := a.writes.acquire(ctx, user.Username)
	if err != nil {
		return saved, err
	}
	defer release()
	body, err := receiveBody(w, r, encoding)
	if err != nil {
		return saved, err
	}
	defer body.close()
	leave, err := a.Store.AcquireSlot(ctx, a.saving, tenantOf(ctx), u.Namespace) // the manifests are in memory
	if err != nil {
		return saved, err
	}
	defer leave()
	upload, err := readUpload(multipart.NewReader(body.text(), parameters["boundary"]))
	if err != nil {
		return saved, err
	}
	defer upload.close()
	if u.Platform, u.PlatformDigest, err = verifiedPlatform(u.Digest, upload.manifests); err != nil {
		return saved, err
	}
	u.Sum, u.User = upload.sum, user.Username
	saved, err = a.Store.SaveUploadedSBOM(ctx, u, upload.content, a.ReportBudget)
	if errors.Is(err, store.ErrOverBudget) {
		return saved, storageFull(u.Namespace)
	}
	if err != nil || saved.Unchanged {
		return saved, err
	}
	a.Log.Info("Saved an uploaded SBOM", "user", user.Username, "namespace", u.Namespace, "digest", u.Digest, "platform", u.Platform,
		"platformDigest", u.PlatformDigest, "bytes", upload.size)
	return saved, a.scanFailed(ctx, u)
}

// storageFull returns the refusal of what does not fit into the budget of a namespace.
func storageFull(namespace string) *problem {
	return newProblem(restv1.ReasonStorageFull, "namespace %s has used up its room in the store (ingest.storeSizePerNamespace in the operator's configuration)", namespace)
}

// scanFailed has the image scanned at once: ImageScans that failed would otherwise wait for their next attempt.
func (a *API) scanFailed(ctx context.Context, u store.UploadedSBOM) error {
	a.Wake(ctx, u.Digest)
	var all v1alpha1.ImageScanList
	if err := a.Reader.List(ctx, &all, client.InNamespace(u.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ImageScans: %w", err)
	}
	for i := range all.Items {
		scan := &all.Items[i]
		isOfImage := scan.Spec.Digest == u.Digest && (u.Platform == "" || scan.Spec.Platform == u.Platform)
		if !isOfImage || phaseOf(scan) != restv1.PhaseFailed {
			continue
		}
		uid := scan.UID
		err := a.ImageScans.Delete(ctx, &v1alpha1.ImageScan{ObjectMeta: *scan.ObjectMeta.DeepCopy()}, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // then it has been created again already
			return fmt.Errorf("deleting ImageScan %s/%s: %w", scan.Namespace, scan.Name, err)
		}
	}
	return nil
}

// DeleteUploadedSBOM implements restv1.StrictServerInterface.
func (a operations) DeleteUploadedSBOM(ctx context.Context, r restv1.DeleteUploadedSBOMRequestObject) (restv1.DeleteUploadedSBOMResponseObject, error) {
	user := callerOf(ctx).user
	if err := a.authorizer.requireAccess(ctx, user, verbDelete, resourceSBOMs, r.Namespace, ""); err != nil {
		return nil, err
	}
	release, err := a.writes.acquire(ctx, user.Username)
	if err != nil {
		return nil, err
	}
	defer release()
	err = a.Store.DeleteUploadedSBOMs(ctx, r.Namespace, r.Digest)
	if errors.Is(err, store.ErrNotFound) {
		return nil, newProblem(restv1.ReasonNotFound, "no SBOM of %s is uploaded in namespace %s", r.Digest, r.Namespace)
	}
	if err != nil {
		return nil, err
	}
	a.Wake(ctx, r.Digest)
	a.Log.Info("Withdrew an uploaded SBOM", "user", user.Username, "namespace", r.Namespace, "digest", r.Digest)
	return restv1.DeleteUploadedSBOM204Response{}, nil
}

// upload is the content of a request that uploads an SBOM.
type upload struct {
	manifests [][]byte
	// content is what a catalog Job gets (workerapi.ContentTypeUploadedSBOM), in a temporary file without a name. sum is a hash of all parts.
	content *os.File
	sum     string
	// size of the SBOM in bytes.
	size int64
}

func (u *upload) close() { _ = u.content.Close() }

// readUpload reads the parts of a body. The SBOM is never in memory.
func readUpload(parts *multipart.Reader) (_ *upload, err error) {
	u, total := &upload{}, 0
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil, missingPart(partSBOM)
		}
		if err != nil {
			return nil, refuseParts(err)
		}
		switch part.FormName() {
		case partManifest:
			manifest, err := io.ReadAll(io.LimitReader(part, workerapi.MaxManifestBytes+1))
			if err != nil {
				return nil, refuseParts(err)
			}
			total += len(manifest)
			if len(manifest) > workerapi.MaxManifestBytes || total > workerapi.MaxManifestsBytes || len(u.manifests) == workerapi.MaxManifests {
				return nil, partProblem(restv1.ReasonLimitExceeded, partManifest, "at most %d documents of %d MiB together are taken", workerapi.MaxManifests, workerapi.MaxManifestsBytes>>20)
			}
			u.manifests = append(u.manifests, manifest)
		case partSBOM:
			if len(u.manifests) == 0 {
				return nil, missingPart(partManifest)
			}
			if err := u.readSBOM(part); err != nil {
				return nil, err
			}
			if _, err := parts.NextRawPart(); !errors.Is(err, io.EOF) {
				u.close()
				return nil, invalidParameter(partSBOM, "it must be the last part of the body")
			}
			return u, nil
		default:
			return nil, invalidParameter("body", "it has a part %.40q, and only %s and %s are known", part.FormName(), partManifest, partSBOM)
		}
	}
}

func missingPart(name string) *problem {
	return invalidParameter(name, "the body needs a part with this name, the manifests first and the SBOM last")
}

// partProblem returns the refusal of a part.
func partProblem(reason restv1.Reason, part, format string, args ...any) *problem {
	p := newProblem(reason, "%s: %s", part, fmt.Sprintf(format, args...))
	p.Field = part
	return p
}

// refuseParts returns the refusal of a body whose parts cannot be read.
func refuseParts(err error) error {
	var refused *problem
	if errors.As(err, &refused) {
		return refused
	}
	return invalidParameter("body", "it is not the multipart/form-data that Content-Type describes")
}

// readSBOM writes what a catalog Job gets.
func (u *upload) readSBOM(part *multipart.Part) (err error) {
	mediaType, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
	shape, known := newSBOMShape(mediaType)
	if err != nil || !known {
		return partProblem(restv1.ReasonUnsupportedMediaType, partSBOM, "the Content-Type of this part must be one of %s", sbomMediaTypes())
	}
	var to io.Writer
	if u.content, to, err = newTemporaryFile("sbom", maxSBOMFile); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	var header workerapi.UploadedSBOM
	sum := sha256.New()
	for _, manifest := range u.manifests {
		header.ManifestSizes = append(header.ManifestSizes, int64(len(manifest)))
	}
	line, err := json.Marshal(header)
	if err != nil {
		return err
	}
	begin := bytes.Join(slices.Insert(slices.Clone(u.manifests), 0, append(line, '\n')), nil)
	if _, err := io.MultiWriter(to, sum).Write(begin); err != nil {
		return err
	}
	encoder, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	// One byte more than allowed distinguishes an SBOM that is too large from one that just fits.
	u.size, err = io.Copy(io.MultiWriter(shape, encoder, sum), io.LimitReader(part, workerapi.MaxUploadedSBOMBytes+1))
	closed := encoder.Close()
	switch problem := (*sbomError)(nil); {
	case errors.As(err, &problem):
		return partProblem(restv1.ReasonInvalidSBOM, partSBOM, "%s", problem.text)
	case err != nil:
		return refuseParts(err)
	case u.size > workerapi.MaxUploadedSBOMBytes:
		return partProblem(restv1.ReasonLimitExceeded, partSBOM, "it has more than %d MiB; leave out the files of its packages", workerapi.MaxUploadedSBOMBytes>>20)
	}
	u.sum = hex.EncodeToString(sum.Sum(nil))
	if problem := shape.problem(); problem != "" {
		return partProblem(restv1.ReasonInvalidSBOM, partSBOM, "%s", problem)
	}
	return closed
}

// verifiedPlatform returns the platform's manifest that the documents lead to from the image's digest, and the platform of nodes that run it. The
// platform is empty if the digest is that of the manifest itself. Nothing of it comes from a text that the digest does not cover.
func verifiedPlatform(digest string, documents [][]byte) (platform, platformDigest string, err error) {
	root, err := v1.NewHash(digest)
	if err != nil {
		return "", "", err
	}
	if got := imagedocument.Digest(documents[0]); got != root {
		return "", "", partProblem(restv1.ReasonInvalidManifest, partManifest, "the first document has the digest %s, and must be the one with the digest of the image, byte for byte", got)
	}
	node := v1.Platform{}
	if isIndex, err := imagedocument.IsIndex(documents[0]); err != nil {
		return "", "", partProblem(restv1.ReasonInvalidManifest, partManifest, "the first document cannot be read: %v", err)
	} else if isIndex {
		named := platformInIndexes(documents)
		if named == nil {
			return "", "", partProblem(restv1.ReasonInvalidManifest, partManifest,
				"the digest is that of an index, so the last document must be a manifest that it has, with a platform")
		}
		// The runtime of a node decides about variants.
		of := image.NewPlatform(named.OS, named.Architecture, named.OSVersion)
		node = v1.Platform{OS: of.OS, Architecture: of.Architecture, OSVersion: of.OSVersion}
		if platform = node.String(); len(platform) > maxPlatformBytes {
			return "", "", partProblem(restv1.ReasonInvalidManifest, partManifest, "the index names the platform %.40q, which has more than %d bytes", platform, maxPlatformBytes)
		}
	}
	found, err := imagedocument.Verify(root, node, documents)
	if err != nil {
		return "", "", partProblem(restv1.ReasonInvalidManifest, partManifest, "%v", err)
	}
	return platform, found.String(), nil
}

// platformInIndexes returns the platform that one of the documents, an index, names for the last one; nil if none does.
func platformInIndexes(documents [][]byte) *v1.Platform {
	last := imagedocument.Digest(documents[len(documents)-1])
	for _, raw := range documents[:len(documents)-1] {
		index, err := imagedocument.Index(raw)
		if err != nil {
			continue
		}
		for _, child := range index.Manifests {
			if child.Digest == last && child.Platform != nil && child.Platform.OS != "" && child.Platform.Architecture != "" {
				return child.Platform
			}
		}
	}
	return nil
}
