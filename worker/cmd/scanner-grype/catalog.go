package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anchore/stereoscope/pkg/image"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/attestation"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/identity"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// catalogJob pulls one image, finds its packages and uploads them.
type catalogJob struct {
	process
	images         []string
	throttledHosts []string
	platform       v1.Platform
	formats        []string
	limits         catalog.Limits
	// preferAttestation allows an attested SBOM instead of a catalog. acceptUpload allows an uploaded SBOM where the image cannot be cataloged.
	preferAttestation, acceptUpload bool
	// readVEX makes the Job read the OpenVEX documents that are attached to the image.
	readVEX    bool
	registries []workerapi.Registry
	client     *ingest.Client
}

// parseCatalog reads the flags, and checks everything that can be checked before the work starts.
func (p process) parseCatalog(args []string, log *slog.Logger) (*catalogJob, error) {
	set := p.flags("catalog")
	var images, throttledHosts stringList
	set.Var(&images, "image", "image `reference`, preferably by digest; repeated ones are tried where the first is not found")
	set.Var(&throttledHosts, "spare", "`host` of a registry that throttles: only its mirrors are used, and it is not used as a mirror; may be repeated")
	var formats stringList
	set.Var(&formats, "format", "additional `format` in which the SBOM is uploaded; may be repeated")
	platform := set.String("platform", "", "`os/arch[/variant]` of the node that runs the image")
	preferAttestation := set.Bool("prefer-attestation", false, "use the SBOM that is attached to the image, if the registry's configuration accepts its signer")
	readVEX := set.Bool("attached-vex", false, "upload the OpenVEX documents that are attached to the image, if the registry's configuration accepts their signers")
	acceptUpload := set.Bool("accept-upload", false, "if the image cannot be cataloged, use the SBOM that was uploaded for it")
	scratch := set.Int64("scratch-size", 0, "`bytes` that the unpacked image may take in the temporary directory; 0 for no bound")
	if err := set.parse(args); err != nil {
		return nil, err
	}
	job := &catalogJob{
		process: p, images: images, throttledHosts: throttledHosts, formats: formats, limits: catalog.Limits{Scratch: *scratch},
		preferAttestation: *preferAttestation, acceptUpload: *acceptUpload, readVEX: *readVEX,
	}
	if len(images) == 0 {
		return nil, errors.New("--image is required")
	}
	if *scratch < 0 {
		return nil, fmt.Errorf("--scratch-size must not be below 0, is %d", *scratch)
	}
	for _, format := range formats {
		if !slices.Contains(workerapi.AdditionalFormats, format) {
			return nil, fmt.Errorf("--format must be one of %s, not %q", strings.Join(workerapi.AdditionalFormats, ", "), format)
		}
	}
	var err error
	if job.platform, err = parsePlatform(*platform); err != nil {
		return nil, err
	}
	if job.registries, err = p.registries(); err != nil {
		return nil, err
	}
	job.client, err = p.ingestClient(log)
	return job, err
}

// parsePlatform parses a platform and normalizes it as in manifests: x86_64 becomes amd64, arm64/v8 becomes arm64.
func parsePlatform(platform string) (v1.Platform, error) {
	bare, osVersion, _ := strings.Cut(platform, ":")
	parsed, err := image.NewPlatform(bare)
	if err != nil || !strings.Contains(bare, "/") {
		return v1.Platform{}, fmt.Errorf("--platform must be os/arch[/variant][:osversion], such as linux/amd64, not %q", platform)
	}
	return v1.Platform{OS: parsed.OS, Architecture: parsed.Architecture, Variant: parsed.Variant, OSVersion: osVersion}, nil
}

// run pulls, catalogs and uploads the image. It writes only to a directory of its own, and removes that at the end.
func (j *catalogJob) run(ctx context.Context, log *slog.Logger) (err error) {
	start := j.clock.Now()
	if err := j.client.CheckReachable(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "scanner-artifacts-")
	if err != nil {
		return fmt.Errorf("the temporary directory must be writable: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	// Credentials are read once and kept in memory. They are never written to disk.
	credentials, err := registry.LoadCredentials(j.pullSecretsDir, log)
	if err != nil {
		return err
	}
	puller := &registry.Puller{
		Registries: j.registries, ThrottledHosts: j.throttledHosts, Credentials: credentials, Transport: j.transport, Log: log, Now: j.clock.Now,
	}
	if puller.Identity, err = j.identity(log); err != nil {
		return err
	}
	contents, err := j.pullSBOM(ctx, log, puller)
	if err != nil && j.acceptUpload {
		contents, err = j.uploadedSBOM(ctx, log, err)
	}
	if err != nil {
		return withUploadAdvice(withNetworkAdvice(err))
	}
	if err := j.upload(ctx, log, dir, contents); err != nil {
		return err
	}
	log.Info("image cataloged", "image", contents.image, "duration", j.clock.Now().Sub(start).Round(time.Millisecond))
	return nil
}

// identity returns the cloud identity of the pod. It returns nil if no registry has a provider, or if the pod runs under another ServiceAccount
// than that of catalog Jobs with an identity: an account of somebody else's must not pull images.
func (j *catalogJob) identity(log *slog.Logger) (registry.Identity, error) {
	if !slices.ContainsFunc(j.registries, func(r workerapi.Registry) bool { return r.Provider != "" }) {
		return nil, nil
	}
	token, err := os.ReadFile(j.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("the token of the pod's ServiceAccount: %w", err)
	}
	account, err := identity.AccountOf(string(token))
	if err != nil {
		return nil, err
	}
	if account.Name != workerapi.CatalogServiceAccount {
		return nil, nil
	}
	return identity.New(identity.Options{Account: account, Getenv: j.getenv, Now: j.clock.Now, Log: log, Transport: j.transport})
}

// imageSBOM is the SBOM of an image.
type imageSBOM struct {
	*sbom.SBOM
	// image is the reference of the image, and platform the one that the image was requested for.
	image, platform string
	// documents prove how the image's digest leads to that of the platform's manifest.
	documents [][]byte
	// signer is who signed it, and uploaded is true if a user has uploaded it; both are zero for a catalog of the image's content. problem is why there
	// is such a catalog although an attested SBOM was preferred, or why there is none beside an uploaded one.
	signer, problem string
	uploaded        bool
	vex             attestation.Documents
}

// pullSBOM pulls the image and returns its SBOM. If a mirror fails while the layers are read, it starts again without that mirror.
func (j *catalogJob) pullSBOM(ctx context.Context, log *slog.Logger, puller *registry.Puller) (imageSBOM, error) {
	for {
		img, err := puller.Pull(ctx, j.images, j.platform)
		if err != nil {
			return imageSBOM{}, err
		}
		log.Info("image found", "image", img.Reference.Name(), "mirror", img.Mirror, "platformDigest", img.Digest.String(),
			"platform", img.Platform.String(), "declaredPlatform", img.Declared.String())
		contents, err := j.readSBOM(ctx, log, puller, img)
		if err == nil {
			contents.image, contents.platform, contents.documents = img.Reference.String(), img.Platform.String(), img.Documents
			return contents, nil
		}
		if !puller.ExcludeMirror(img, err) {
			return imageSBOM{}, err
		}
		log.Warn("a mirror has the image and does not deliver it, continuing without the mirror", "mirror", img.Mirror, "error", failure.Line(err.Error()))
	}
}

// readSBOM returns the attested SBOM of an image if that is preferred and there is one, or else catalogs the image.
func (j *catalogJob) readSBOM(ctx context.Context, log *slog.Logger, puller *registry.Puller, img *registry.Image) (out imageSBOM, err error) {
	configured := j.registryOf(img)
	if j.readVEX && configured.VEX.ReadsImages() {
		if out.vex, err = attestation.FindVEX(ctx, puller, img, configured, log); err != nil {
			return imageSBOM{}, err
		}
		log.Info("OpenVEX documents read", "accepted", len(out.vex.Found), "problem", out.vex.Problem, "unread", out.vex.Unread)
	}
	if source := configured.SBOM; j.preferAttestation && source.PrefersAttestation() {
		attested, problem, err := attestation.Find(ctx, puller, img, source, log)
		if err != nil {
			return imageSBOM{}, err
		}
		if attested != nil {
			log.Info("attested SBOM found", "where", attested.Where, "signer", attested.Signer, "packages", attested.Contents.Artifacts.Packages.PackageCount())
			out.SBOM, out.signer = attested.Contents, attested.Signer
			return out, nil
		}
		log.Warn("no attested SBOM is used, cataloging the image", "reason", problem)
		out.problem = problem
	}
	out.SBOM, err = j.limits.SBOM(ctx, img, log)
	return out, err
}

// registryOf returns the configuration of the registry that the image was requested from; the zero value if it has none.
func (j *catalogJob) registryOf(img *registry.Image) workerapi.Registry {
	host := workerapi.CanonicalHost(img.Reference.Context().RegistryStr())
	for _, configured := range j.registries {
		if workerapi.CanonicalHost(configured.Host) == host {
			return configured
		}
	}
	return workerapi.Registry{}
}

// withNetworkAdvice adds advice about network policies in front of an error if nothing in the network answers. The
// texts of such errors are long, and contain only addresses.
func withNetworkAdvice(err error) error {
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != workerapi.ReasonRegistryUnavail || !ingest.IsUnanswered(err) {
		return err
	}
	return failure.New(known.Reason, fmt.Errorf("%s: %w", ingest.EgressAdvice(err, "the registry"), err))
}

// upload writes the SBOM in all its formats and the match input to dir, and sends them with the result in one request.
func (j *catalogJob) upload(ctx context.Context, log *slog.Logger, dir string, contents imageSBOM) error {
	packages := contents.Artifacts.Packages.PackageCount()
	if packages > workerapi.MaxPackages {
		return failure.New(workerapi.ReasonImageTooLarge,
			fmt.Errorf("the image has %d packages, more than the limit of %d; exclude the image", packages, workerapi.MaxPackages))
	}
	full, err := catalog.Write(dir, syftjson.ToFormatModel(*contents.SBOM, syftjson.DefaultEncoderConfig()), workerapi.MaxSBOMContentBytes)
	if err != nil {
		return err
	}
	compact, err := catalog.Write(dir, input.Compact(contents.SBOM), workerapi.MaxMatchInputContentBytes)
	if err != nil {
		return err
	}
	log.Info("uploading", "sbomBytes", full.Size, "sbomContentBytes", full.ContentSize,
		"matchInputBytes", compact.Size, "matchInputContentBytes", compact.ContentSize)
	result := workerapi.CatalogResult{
		Image:      contents.image,
		Platform:   contents.platform,
		Distro:     catalog.Distro(contents.SBOM),
		Packages:   packages,
		Tool:       version.Syft(),
		SBOMSigner: text.Truncate(contents.signer, workerapi.MaxSBOMSignerBytes), SBOMProblem: contents.problem,
		UploadedSBOM: contents.uploaded, VEXProblem: contents.vex.Problem, VEXUnread: contents.vex.Unread,
		SBOMSize: full.Size, MatchInputSize: compact.Size,
	}
	documents := []ingest.Part{ingest.File(full.Path, full.Size), ingest.File(compact.Path, compact.Size)}
	for _, format := range j.formats {
		additional, err := catalog.WriteFormat(dir, format, contents.SBOM, workerapi.MaxSBOMContentBytes)
		if err != nil {
			return err
		}
		log.Info("also uploading", "format", format, "bytes", additional.Size, "contentBytes", additional.ContentSize)
		result.Additional = append(result.Additional, workerapi.FormattedSBOM{Format: format, Size: additional.Size})
		documents = append(documents, ingest.File(additional.Path, additional.Size))
	}
	for _, document := range contents.vex.Found {
		result.VEX = append(result.VEX, workerapi.VEXDocument{Signer: text.Truncate(document.Signer, workerapi.MaxSBOMSignerBytes), Size: int64(len(document.Content))})
		documents = append(documents, ingest.Bytes(document.Content))
	}
	begin, err := uploadHeader(contents.documents, result)
	if err != nil {
		return err
	}
	return withRefusalReason(j.client.PutParts(ctx, workerapi.PathCatalogResult, workerapi.ContentTypeCatalog,
		slices.Insert(documents, 0, ingest.Bytes(begin))...))
}

// uploadHeader returns the part of the upload before the SBOM: the result, and the documents that prove how the image's digest leads to
// that of the platform's manifest.
func uploadHeader(documents [][]byte, result workerapi.CatalogResult) ([]byte, error) {
	for _, document := range documents {
		result.ManifestSizes = append(result.ManifestSizes, int64(len(document)))
	}
	line, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{append(line, '\n'), bytes.Join(documents, nil)}, nil), nil
}

// withRefusalReason adds the reason UploadRefused to an error if the server refused the upload.
func withRefusalReason(err error) error {
	if err != nil && ingest.IsRefused(err) {
		return failure.New(workerapi.ReasonUploadRefused, err)
	}
	return err
}
