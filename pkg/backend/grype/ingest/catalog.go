package ingest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/attached"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxText bounds texts of a worker about an image, in bytes.
const maxText = 256

// maxStatementBytes bounds the statements of attached OpenVEX documents about all images of a namespace, in bytes as they are stored.
const maxStatementBytes = 8 << 20

// maxHeader bounds the JSON line at the start of a catalog Job's upload, in bytes.
const maxHeader = 64 << 10

// errResultExists refuses a second result of a Job.
var errResultExists = refuse(http.StatusConflict, "this Job has brought another result already")

// putResult receives the result of a catalog Job in one request and one temporary file. Each Job has one result.
func (i *Ingest) putResult(w http.ResponseWriter, r *http.Request, job store.Job) (err error) {
	defer drain(r.Body)
	digest := r.Header.Get(workerapi.DigestHeader)
	switch job.Result {
	case "":
	case digest: // a retry: the answer to the first request got lost
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return errResultExists
	}
	// An expired deadline aborts reading the body at once.
	if err := i.spool.begin(job.UID, func() { setBodyDeadline(w, -time.Minute) }); err != nil {
		return err
	}
	defer func() { i.spool.finish(job.UID, isPermanent(err)) }()
	setBodyDeadline(w, uploadTime)
	received, err := i.spool.receive(namespaceOf(job), http.MaxBytesReader(w, r.Body, i.Limits.Catalog), digest)
	if err != nil {
		return err
	}
	defer received.remove()
	clearBodyDeadline(w)
	// The result is checked and stored even if the sender hangs up now. A sender could otherwise make the manager check the same upload
	// any number of times, since an upload counts as refused only after the check.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), uploadTime)
	defer cancel()
	if err := i.saveResult(ctx, job, received, digest); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// namespaceOf returns the namespace whose budgets an upload counts for: the one on whose behalf the Job was created.
func namespaceOf(job store.Job) string {
	if job.Scope != store.Cluster {
		return string(job.Scope)
	}
	return job.ScannerNamespace
}

// isPermanent reports whether an upload was refused for its content, and not for a lack of space or time.
func isPermanent(err error) bool {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.retryAfter == 0
	}
	return isTooLarge(err)
}

// saveResult checks an upload and stores it for the image that the manager's record of the Job names.
func (i *Ingest) saveResult(ctx context.Context, job store.Job, received *upload, digest string) error {
	release, err := i.Store.AcquireSlot(ctx, i.checking, namespaceOf(job), namespaceOf(job))
	if err != nil {
		return err
	}
	defer release()
	brought, err := parseResult(received.File)
	if err != nil {
		return err
	}
	if err := errors.Join(checkResult(brought.result, job), i.checkContents(brought)); err != nil {
		return err
	}
	platformDigest, err := brought.platformDigest(job.Key)
	if err != nil {
		return err
	}
	vex, err := i.imageVEX(brought, job, platformDigest)
	if err != nil {
		return err
	}
	origin, err := i.originOf(ctx, brought.result, job)
	if err != nil {
		return err
	}
	artifacts, size := brought.artifacts()
	kept, err := i.Store.SaveJobResult(ctx, store.JobResult{
		Catalog: store.Catalog{
			Engine: grype.Engine, Key: job.Key, Scope: job.Scope, PlatformDigest: platformDigest,
			Distro: truncate(brought.result.Distro, maxText), Packages: brought.result.Packages, Tool: truncate(brought.result.Tool, maxText), CatalogedAt: i.Clock.Now(),
			Namespace: namespaceOf(job), Origin: origin,
		},
		JobUID: job.UID, Digest: digest, Artifacts: artifacts, Size: size, Budget: i.StoreBytes, VEX: vex,
	})
	if err != nil {
		return i.storeRefusal(ctx, err, job)
	}
	i.Log.Info("Cataloged an image", "image", job.Key.String(), "scope", job.Scope, "platformDigest", platformDigest,
		"packages", brought.result.Packages, "kept", kept, "sbomSigner", origin.Signer, "sbomUploader", origin.Uploader, "statements", len(vex.Statements))
	i.Backend.RecordCatalog(ctx, job)
	return nil
}

// storeRefusal translates an error of the store into a refusal.
func (i *Ingest) storeRefusal(ctx context.Context, err error, job store.Job) error {
	switch {
	case errors.Is(err, store.ErrOverBudget):
		i.metrics.overBudget.WithLabelValues("store").Inc()
		i.Backend.RecordOverBudget(ctx, job)
		return refuse(http.StatusRequestEntityTooLarge, "the SBOMs and findings of the namespace %q have used up their room in the store "+
			"(ingest.storeSizePerNamespace in the operator's configuration)", namespaceOf(job))
	case errors.Is(err, store.ErrResultTaken):
		return errResultExists
	case errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusForbidden, "the Job has ended")
	}
	return err
}

// parsedResult is a parsed upload.
type parsedResult struct {
	result           workerapi.CatalogResult
	manifests        []*io.SectionReader
	sbom, matchInput *io.SectionReader
	additional       map[store.Artifact]*io.SectionReader
	vex              []*io.SectionReader
}

// artifactOf maps the additional formats of an SBOM to their artifacts.
var artifactOf = map[string]store.Artifact{workerapi.FormatCycloneDX: store.ArtifactCycloneDX, workerapi.FormatSPDX: store.ArtifactSPDX}

// parseResult splits an upload into its documents. Missing or trailing bytes are an error.
func parseResult(file *os.File) (*parsedResult, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	b := &parsedResult{}
	line, err := bufio.NewReaderSize(io.NewSectionReader(file, 0, maxHeader), maxHeader).ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &b.result)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body does not begin with a line of JSON that says what follows, of at most %d KiB: %v", maxHeader>>10, err)
	}
	if err := b.split(file, int64(len(line)), info.Size()); err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "%v", err)
	}
	return b, nil
}

// split sets the documents, which fill the file from one offset to another.
func (b *parsedResult) split(file io.ReaderAt, at, end int64) error {
	if n := len(b.result.ManifestSizes); n < 1 || n > workerapi.MaxManifests {
		return fmt.Errorf("manifestSizes: %d documents, want 1 to %d", n, workerapi.MaxManifests)
	}
	next := func(size int64) *io.SectionReader {
		section := io.NewSectionReader(file, at, size)
		at += size
		return section
	}
	for _, size := range slices.Concat(b.result.ManifestSizes, []int64{b.result.SBOMSize, b.result.MatchInputSize}) {
		if size < 0 || size > end-at {
			return fmt.Errorf("a document of %d bytes does not fit into what was sent", size)
		}
	}
	all := int64(0)
	for _, size := range b.result.ManifestSizes {
		if all += size; all > workerapi.MaxManifestsBytes+workerapi.MaxManifestBytes {
			return fmt.Errorf("manifestSizes: %d bytes and more together, want at most %d", all, workerapi.MaxManifestsBytes+workerapi.MaxManifestBytes)
		}
		if size > workerapi.MaxManifestBytes {
			return fmt.Errorf("manifestSizes: %d bytes, want at most %d", size, workerapi.MaxManifestBytes)
		}
		b.manifests = append(b.manifests, next(size))
	}
	b.sbom, b.matchInput = next(b.result.SBOMSize), next(b.result.MatchInputSize)
	b.additional = map[store.Artifact]*io.SectionReader{}
	for _, sbom := range b.result.Additional {
		artifact, known := artifactOf[sbom.Format]
		switch {
		case !known || b.additional[artifact] != nil:
			return fmt.Errorf("additional: %q is no additional format of an SBOM, or comes twice", sbom.Format)
		case sbom.Size < 0 || sbom.Size > end-at:
			return fmt.Errorf("a document of %d bytes does not fit into what was sent", sbom.Size)
		}
		b.additional[artifact] = next(sbom.Size)
	}
	if n := len(b.result.VEX); n > workerapi.MaxVEXDocuments {
		return fmt.Errorf("vex: %d documents, want at most %d", n, workerapi.MaxVEXDocuments)
	}
	all = 0
	for _, document := range b.result.VEX {
		if all += document.Size; document.Size < 0 || document.Size > end-at || all > workerapi.MaxVEXBytes {
			return fmt.Errorf("vex: documents of %d bytes and more do not fit, at most %d are allowed", all, workerapi.MaxVEXBytes)
		}
		b.vex = append(b.vex, next(document.Size))
	}
	if at != end {
		return fmt.Errorf("the documents have %d bytes more or less than were sent", end-at)
	}
	return nil
}

// checkContents decompresses the SBOMs and the match input to verify them, and rewinds them.
func (i *Ingest) checkContents(b *parsedResult) error {
	sboms := slices.Collect(maps.Values(b.additional))
	for _, sbom := range append(sboms, b.sbom) {
		if err := verifyZstd(sbom, i.Limits.SBOMContent); err != nil {
			return err
		}
		if _, err := sbom.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return i.readMatchInput(b, nil)
}

// readMatchInput verifies the match input, and rewinds it. visit gets each package; nil for none.
func (i *Ingest) readMatchInput(b *parsedResult, visit func(finding.Package)) error {
	if err := verifyMatchInput(b.matchInput, i.Limits.MatchInputContent, visit); err != nil {
		return err
	}
	_, err := b.matchInput.Seek(0, io.SeekStart)
	return err
}

// artifacts returns the artifacts to store, and the sum of their sizes in bytes.
func (b *parsedResult) artifacts() (all map[store.Artifact]io.Reader, size int64) {
	all, size = map[store.Artifact]io.Reader{store.ArtifactSBOM: b.sbom, store.ArtifactMatchInput: b.matchInput}, b.sbom.Size()+b.matchInput.Size()
	for artifact, sbom := range b.additional {
		all[artifact] = sbom
		size += sbom.Size()
	}
	return all, size
}

// platformDigest returns the digest of the platform's manifest. It fails unless the uploaded documents lead from the requested digest to
// that manifest.
func (b *parsedResult) platformDigest(key image.Key) (string, error) {
	root, err := v1.NewHash(key.Digest)
	if err != nil {
		return "", err
	}
	documents := make([][]byte, len(b.manifests))
	for n, manifest := range b.manifests {
		if documents[n], err = io.ReadAll(manifest); err != nil {
			return "", err
		}
	}
	platform := v1.Platform{OS: key.Platform.OS, Architecture: key.Platform.Architecture, Variant: key.Platform.Variant, OSVersion: key.Platform.OSVersion}
	digest, err := document.Verify(root, platform, documents)
	if err != nil {
		return "", refuse(http.StatusUnprocessableEntity, "the manifest is not one of the image: %v", err)
	}
	return digest.String(), nil
}

// checkResult refuses a result that cannot be about the Job's image, or that no match worker could hold in memory.
func checkResult(result workerapi.CatalogResult, job store.Job) error {
	if result.Packages < 0 || result.Packages > workerapi.MaxPackages {
		return refuse(http.StatusUnprocessableEntity, "packages: %d, want 0 to %d; exclude the image if it has more", result.Packages, workerapi.MaxPackages)
	}
	switch {
	case result.SBOMSigner != "" && (job.SBOMPolicy == "" || store.IsUpload(job.SBOMPolicy)):
		return refuse(http.StatusUnprocessableEntity, "sbomSigner: %.80q signed the SBOM, and this Job has to catalog the image", result.SBOMSigner)
	case result.UploadedSBOM && !store.IsUpload(job.SBOMPolicy):
		return refuse(http.StatusUnprocessableEntity, "uploadedSBOM: this Job may not use an uploaded SBOM")
	}
	if len(result.VEX) > 0 && job.VEXPolicy == "" {
		return refuse(http.StatusUnprocessableEntity, "vex: %d documents were sent, and this Job may bring none", len(result.VEX))
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

// originOf returns where the list of packages comes from. The policy is the one that the manager gave the Job, and an uploader is the one of the
// upload.
func (i *Ingest) originOf(ctx context.Context, result workerapi.CatalogResult, job store.Job) (store.Origin, error) {
	problem := truncate(failure.Line(result.SBOMProblem), workerapi.MaxSBOMProblemBytes)
	switch {
	case result.UploadedSBOM:
		uploaded, err := i.uploadedSBOM(ctx, job)
		return store.Origin{Policy: job.SBOMPolicy, Uploader: uploaded.User, UploadedAt: uploaded.SavedAt, Problem: problem}, err
	case result.SBOMSigner != "":
		return store.Origin{Policy: job.SBOMPolicy, Signer: truncate(failure.Line(result.SBOMSigner), workerapi.MaxSBOMSignerBytes)}, nil
	case store.IsUpload(job.SBOMPolicy):
		return store.Origin{}, nil // content counts for more than the upload, and nothing is wrong
	}
	return store.Origin{Problem: problem}, nil
}

// imageVEX returns what the OpenVEX documents of the result amount to. The policy is the one that the manager gave the Job. With an uploaded SBOM, the
// Job could not read the image's documents: those of an earlier Job stay.
func (i *Ingest) imageVEX(b *parsedResult, job store.Job, platformDigest string) (store.ImageVEX, error) {
	if job.VEXPolicy == "" || b.result.UploadedSBOM {
		return store.ImageVEX{}, nil
	}
	documents := make([]attached.Document, len(b.vex))
	for n, document := range b.vex {
		content, err := io.ReadAll(document)
		if err != nil {
			return store.ImageVEX{}, err
		}
		documents[n] = attached.Document{Content: content, Signer: truncate(failure.Line(b.result.VEX[n].Signer), workerapi.MaxSBOMSignerBytes)}
	}
	about := attached.Image{Digests: []string{platformDigest, job.Key.Digest}, Architecture: job.Key.Platform.Architecture}
	if ref, err := image.ParseReference(b.result.Image); err == nil {
		about.Repository = ref.Repository
	}
	statements, problems := attached.Exceptions(documents, b.result.VEXUnread, about)
	if b.result.VEXProblem != "" {
		problems = append(problems, b.result.VEXProblem)
	}
	unfitting, err := i.unfitting(b, statements)
	if err != nil {
		return store.ImageVEX{}, err
	}
	problems = append(problems, unfitting...)
	return store.ImageVEX{
		Policy: job.VEXPolicy, Statements: statements, Budget: maxStatementBytes, Problem: truncate(failure.Line(strings.Join(problems, "; ")), workerapi.MaxVEXProblemBytes),
	}, nil
}

// unfitting says how many statements name no package of the image; empty if all do. They suppress nothing, which their author should learn of.
func (i *Ingest) unfitting(b *parsedResult, statements []exception.Exception) (problems []string, err error) {
	if !slices.ContainsFunc(statements, func(e exception.Exception) bool { return len(e.Packages) > 0 }) {
		return nil, nil
	}
	fit := exception.NewFit(statements)
	if err := i.readMatchInput(b, fit.Add); err != nil {
		return nil, err
	}
	all := fit.Unfitting()
	if len(all) == 0 {
		return nil, nil
	}
	first := statements[all[0]]
	return []string{fmt.Sprintf("%d of %d statements name no package of the image, such as %s %s for %s",
		len(all), len(statements), first.Packages[0].FullName(), first.Packages[0].Version, first.Vulnerabilities[0])}, nil
}

// truncate cuts a text to limit bytes, without a partial character at its end.
func truncate(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
