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

// once: a mirror is not asked again after a failure of the network, since there is another source.
var once = remote.Backoff{Steps: 1}

// mirrorShare of the patience with a registry is what a mirror gets for its manifest: with up to four that say nothing,
// and a registry that says nothing either, users still learn of it within two minutes.
const mirrorShare = 4

// pullFromMirrors asks the mirrors of a reference's registry in their order. If none has the image, which is no
// failure, tried says in a few words what became of each, for the message about the registry itself.
// A digest is what makes a mirror's content as good as the registry's: without one, no mirror is asked.
func (p *Puller) pullFromMirrors(ctx context.Context, ref name.Reference, platform v1.Platform) (image *Image, tried string) {
	digest, pinned := ref.(name.Digest)
	if !pinned {
		return nil, ""
	}
	var outcomes []string
	for _, mirror := range hostsOf(p.Registries).of(ref.Context().RegistryStr()).Mirrors {
		host, _, _ := strings.Cut(mirror, "/")
		if slices.Contains(p.Avoided, mirror) || p.isSpared(host) {
			continue
		}
		image, err := p.pullFrom(ctx, mirror, digest, platform)
		if err == nil {
			image.Reference, image.Mirror = ref, mirror
			return image, ""
		}
		p.Log.Warn("a mirror does not deliver", "mirror", mirror, "image", ref.Name(), "error", failure.Line(err.Error()))
		outcomes = append(outcomes, mirror+" ("+reason(err)+")")
		// It is slowed down within this Job only: nobody waits for a mirror, and the next Job asks it again.
		if reason(err) == workerapi.ReasonRegistryThrottled {
			p.Avoided = append(p.Avoided, mirror)
		}
	}
	if len(outcomes) == 0 {
		return nil, ""
	}
	return nil, "; before that, mirrors failed: " + strings.Join(outcomes, ", ")
}

// pullFrom asks one mirror, with the credentials for the mirror's own host.
func (p *Puller) pullFrom(ctx context.Context, mirror string, digest name.Digest, platform v1.Platform) (*Image, error) {
	ref, err := p.parse(mirror + "/" + digest.Context().RepositoryStr() + "@" + digest.DigestStr())
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, err)
	}
	return p.ask(ctx, ref, platform, p.patience()/mirrorShare, remote.WithRetryBackoff(once))
}

// Avoid asks an image's mirror no more, if it is the mirror that failed: some have manifests without their layers.
// It returns false if there is no other source, or the failure would be the same there.
func (p *Puller) Avoid(image *Image, err error) bool {
	if image.Mirror == "" {
		return false
	}
	switch reason(err) {
	case workerapi.ReasonImageNotFound, workerapi.ReasonForeignLayer, workerapi.ReasonUnauthorized, workerapi.ReasonRegistryThrottled,
		workerapi.ReasonRegistryUnavail:
		p.Avoided = append(p.Avoided, image.Mirror)
		return true
	}
	return false
}

// reason of a failure.
func reason(err error) string {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return workerapi.ReasonCatalogFailed
}
