package export

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// emptyBOM is the SBOM of a container that is not there any more.
const emptyBOM = `{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[]}`

// dependencyTrack sends the SBOM of each container to a project of its own, as it is stored. Dependency-Track finds vulnerabilities itself.
type dependencyTrack struct{}

// needsAllResults is false: another container's image has no influence on a project.
func (dependencyTrack) needsAllResults() bool { return false }

func (dependencyTrack) timeout() time.Duration { return DependencyTrackTimeout }

func (dependencyTrack) lacksDocument(w store.WorkloadVersion) bool { return w.WithoutSBOM > 0 }

func (d dependencyTrack) versionOf(s Settings, w store.WorkloadVersion) string {
	return sumOf(w.SBOMs, fmt.Sprint(d.projectOf(s, w, "")))
}

// projectOf returns the project of a container.
func (dependencyTrack) projectOf(s Settings, w store.WorkloadVersion, container string) Project {
	return Project{DependencyTrack: DependencyTrackProject{
		Name: shorten(fmt.Sprintf("%s/%s/%s/%s", w.Namespace, w.Kind, w.Name, container), maxNameBytes), Version: s.Cluster,
	}}
}

// documents returns the SBOM of each container by the container's name. A container may run several images, during a rollout or on nodes of several
// platforms. A project has one SBOM: the first one, in an order that does not change.
func (d dependencyTrack) documents(ctx context.Context, s Settings, from Store, w store.WorkloadVersion) (map[string]document, error) {
	sboms, err := from.WorkloadSBOMs(ctx, s.UID, w.Namespace, w.Kind, w.Name)
	if err != nil {
		return nil, err
	}
	documents := map[string]document{}
	for _, sbom := range sboms {
		if documents[sbom.Container].id != "" {
			continue
		}
		made := document{project: d.projectOf(s, w, sbom.Container)}
		if sbom.ID != 0 {
			made.id = fmt.Sprint(sbom.ID)
			made.read = func(ctx context.Context) ([]byte, error) { return readSBOM(ctx, from, sbom) }
		}
		documents[sbom.Container] = made
	}
	return documents, nil
}

// readSBOM returns a stored SBOM, compressed with zstd.
func readSBOM(ctx context.Context, from Store, sbom store.WorkloadSBOM) ([]byte, error) {
	reader, size, err := from.OpenArtifact(ctx, sbom.PlatformDigest, sbom.Scope, store.ArtifactCycloneDX)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if size > MaxDocumentBytes {
		return nil, &tooLargeError{size}
	}
	return io.ReadAll(reader)
}

// tooLargeError is the error for an SBOM of more than MaxDocumentBytes.
type tooLargeError struct{ size int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the compressed SBOM has %d MiB, more than the %d MiB that an export can have", e.size>>20, MaxDocumentBytes>>20)
}

func (dependencyTrack) closing(p Project) (document, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return document{}, err
	}
	return documentOf(p, encoder.EncodeAll([]byte(emptyBOM), nil)), nil
}
