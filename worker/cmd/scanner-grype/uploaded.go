package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// uploadURL is the page about uploaded SBOMs.
const uploadURL = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/integrate/sbom-uploads.md"

// maxUploadedHeader bounds the line of JSON before the documents, in bytes.
const maxUploadedHeader = 64 << 10

// mayPass are the reasons of failures that may pass.
var mayPass = []string{workerapi.ReasonRegistryThrottled, workerapi.ReasonRegistryUnavail, workerapi.ReasonScratchFull}

// uploadedSBOM returns the uploaded SBOM of an image that cannot be cataloged. cause is why. It returns cause if the content may be there soon: a
// catalog of content is better than what somebody says about it, and an outage must not let the upload of an image count that the cluster can read.
func (j *catalogJob) uploadedSBOM(ctx context.Context, log *slog.Logger, cause error) (imageSBOM, error) {
	reason := reasonOf(cause)
	if ctx.Err() != nil || slices.Contains(mayPass, reason) {
		return imageSBOM{}, cause
	}
	var uploaded imageSBOM
	err := j.client.Get(ctx, workerapi.PathUploadedSBOM, func(from io.Reader) (err error) {
		uploaded, err = readUploaded(from)
		return err
	})
	if err != nil {
		return imageSBOM{}, fmt.Errorf("%w; the SBOM that was uploaded for the image cannot be used: %s", cause, failure.Line(err.Error()))
	}
	uploaded.image, uploaded.platform = j.images[0], j.platform.String()
	described := failure.Describe(cause, workerapi.ReasonCatalogFailed)
	uploaded.problem = text.Truncate(described.Reason+": "+described.Message, workerapi.MaxSBOMProblemBytes)
	log.Warn("the image cannot be cataloged, using the uploaded SBOM", "reason", uploaded.problem, "packages", uploaded.Artifacts.Packages.PackageCount())
	return uploaded, nil
}

// readUploaded reads what workerapi.PathUploadedSBOM sends. The manager has checked sizes and documents. The SBOM is as somebody has uploaded it.
func readUploaded(from io.Reader) (imageSBOM, error) {
	reader := bufio.NewReaderSize(from, maxUploadedHeader)
	line, err := reader.ReadSlice('\n')
	var header workerapi.UploadedSBOM
	if err == nil {
		err = json.Unmarshal(line, &header)
	}
	if err != nil {
		return imageSBOM{}, fmt.Errorf("it is not sent as expected: %w", err)
	}
	uploaded := imageSBOM{uploaded: true}
	for _, size := range header.ManifestSizes {
		if size < 0 || size > workerapi.MaxManifestBytes || len(uploaded.documents) == workerapi.MaxManifests {
			return imageSBOM{}, errors.New("it is sent with documents that are too large")
		}
		document := make([]byte, size)
		if _, err := io.ReadFull(reader, document); err != nil {
			return imageSBOM{}, fmt.Errorf("it is not sent to its end: %w", err)
		}
		uploaded.documents = append(uploaded.documents, document)
	}
	decoder, err := zstd.NewReader(reader, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		return imageSBOM{}, err
	}
	defer decoder.Close()
	var content bytes.Buffer
	// One byte more than allowed distinguishes an SBOM that is too large from one that just fits.
	switch n, err := io.Copy(&content, io.LimitReader(decoder, workerapi.MaxUploadedSBOMBytes+1)); {
	case err != nil:
		return imageSBOM{}, fmt.Errorf("it is not sent to its end: %w", err)
	case n > workerapi.MaxUploadedSBOMBytes:
		return imageSBOM{}, fmt.Errorf("it is larger than %d MiB", workerapi.MaxUploadedSBOMBytes>>20)
	}
	if uploaded.SBOM, _, err = catalog.Decode(content.Bytes()); err != nil {
		return imageSBOM{}, fmt.Errorf("it %w", err)
	}
	return uploaded, nil
}

// reasonOf returns the reason of a failure; empty if it has none.
func reasonOf(err error) string {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return ""
}

// withUploadAdvice adds a way out to a failure for which the cluster has no credentials.
func withUploadAdvice(err error) error {
	if !slices.Contains([]string{
		workerapi.ReasonNodeCredentials, workerapi.ReasonUnauthorized, workerapi.ReasonPullSecretMissing, workerapi.ReasonIdentityMissing,
	}, reasonOf(err)) {
		return err
	}
	return fmt.Errorf("%w; or upload an SBOM of the image: %s", err, uploadURL)
}
