package registry

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// noRetry disables retries for mirrors: after a network failure, there is another source.
var noRetry = remote.Backoff{Steps: 1}

// mirrorTimeoutDivisor divides the stall timeout of a registry to get that of a mirror's manifest. With up to four mirrors that send nothing,
// and a registry that sends nothing either, users see the failure within two minutes.
const mirrorTimeoutDivisor = 4

// pullFromMirrors tries the mirrors of a reference's registry in their order. It is not a failure if none has the image: image
// is nil then, and tried lists the outcome of each mirror for the message about the registry itself.
// Only a digest proves that a mirror's content is the registry's, so references without a digest are not pulled from mirrors.
func (p *Puller) pullFromMirrors(ctx context.Context, ref name.Reference, platform v1.Platform) (image *Image, tried string) {
	digest, pinned := ref.(name.Digest)
	if !pinned {
		return nil, ""
	}
	var outcomes []string
	for _, mirror := range hostsOf(p.Registries).configFor(ref.Context().RegistryStr()).Mirrors {
		host, _, _ := strings.Cut(mirror, "/")
		if slices.Contains(p.ExcludedMirrors, mirror) || p.isThrottled(host) {
			continue
		}
		image, err := p.pullFromMirror(ctx, mirror, digest, platform)
		if err == nil {
			image.Reference, image.Mirror = ref, mirror
			return image, ""
		}
		p.Log.Warn("a mirror does not deliver", "mirror", mirror, "image", ref.Name(), "error", failure.Line(err.Error()))
		outcomes = append(outcomes, mirror+" ("+reason(err)+")")
		// Only this Job skips the throttled mirror. Nothing waits for a mirror, and the next Job tries it again.
		if reason(err) == workerapi.ReasonRegistryThrottled {
			p.ExcludedMirrors = append(p.ExcludedMirrors, mirror)
		}
	}
	if len(outcomes) == 0 {
		return nil, ""
	}
	return nil, "; before that, mirrors failed: " + strings.Join(outcomes, ", ")
}

// pullFromMirror pulls from one mirror, with the credentials for the mirror's own host.
func (p *Puller) pullFromMirror(ctx context.Context, mirror string, digest name.Digest, platform v1.Platform) (*Image, error) {
	ref, err := p.parse(mirror + "/" + digest.Context().RepositoryStr() + "@" + digest.DigestStr())
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, err)
	}
	return p.resolveWithCredentials(ctx, ref, platform, p.stallTimeout()/mirrorTimeoutDivisor, remote.WithRetryBackoff(noRetry))
}

// ExcludeMirror excludes an image's mirror from further pulls if the mirror caused err: some have manifests without their layers.
// It returns false if there is no other source, or if the failure would be the same there.
func (p *Puller) ExcludeMirror(image *Image, err error) bool {
	if image.Mirror == "" {
		return false
	}
	switch reason(err) {
	case workerapi.ReasonImageNotFound, workerapi.ReasonForeignLayer, workerapi.ReasonUnauthorized, workerapi.ReasonRegistryThrottled,
		workerapi.ReasonRegistryUnavail:
		p.ExcludedMirrors = append(p.ExcludedMirrors, image.Mirror)
		return true
	}
	return false
}

// reason returns the reason of a failure; CatalogFailed if it has none.
func reason(err error) string {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return workerapi.ReasonCatalogFailed
}
