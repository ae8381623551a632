package story

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"time"

	"github.com/scanner-operator/scanner-operator/test/clairfeed"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// ClairNamespace is that of config/clair.
const ClairNamespace = "clair"

const (
	// clairURL is where config/clair puts Clair.
	clairURL = "http://clair." + ClairNamespace + ".svc:6060"
	// clairWebhooks is where config/clair makes the notifier take Clair's webhooks.
	clairWebhooks = "http://scanner-operator-clair-webhooks." + SystemNamespace + ".svc"
	// feedsURL is where the story's advisories are served to Clair.
	feedsURL = "http://advisories." + InfraNamespace + ".svc"
)

// Deployments of config/clair.
const (
	ClairDeployment         = "deployment/clair"
	ClairDatabaseDeployment = "deployment/clair-database"
)

// clairSetup is what differs from one installation of Clair to the next.
type clairSetup struct {
	image, database pushedImage
	// key is the pre-shared one, in base64.
	key string
}

// pushedImage is one by digest.
type pushedImage struct{ Repository, Digest string }

func (e *Environment) setUpWithClair() []Step {
	return []Step{
		{"Remove what an earlier run left", e.removeEarlier},
		{"Push the images of the shop", e.pushWorkloads},
		{"Advisories as Debian, Alpine, OSV and NVD publish them, served inside the cluster", e.publishFirstFeeds},
		{"A stand-in for Slack, over TLS with a certificate authority of its own", e.startSlack},
		{"Settings and secrets of Clair", e.prepareClair},
		{"The operator, with Clair and PostgreSQL beside it", e.deployOperatorAndClair},
	}
}

func (e *Environment) publishFirstFeeds(ctx context.Context) (string, error) {
	if err := e.MakeNamespace(ctx, InfraNamespace); err != nil {
		return "", err
	}
	return feedsURL, e.publishFeeds(ctx, "advisories")
}

// publishFeeds serves the advisories of directories of the fixtures to Clair, in the place of those before.
func (e *Environment) publishFeeds(ctx context.Context, names ...string) error {
	out := e.bin("story", "feeds")
	if err := clairfeed.Write(out, time.Now(), e.fixtures(names...)...); err != nil {
		return err
	}
	image, err := e.pushFiles(ctx, InfraNamespace+"/advisories", out)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, "feeds.yaml", map[string]string{"Namespace": InfraNamespace, "Image": image}); err != nil {
		return err
	}
	return e.RolledOut(ctx, InfraNamespace, "deployment/advisories")
}

// forgetFeeds removes the advisories that were written here.
func (e *Environment) forgetFeeds() error { return os.RemoveAll(e.bin("story", "feeds")) }

// prepareClair does what a user of config/clair does before installing it, with new secrets each time.
func (e *Environment) prepareClair(ctx context.Context) (string, error) {
	setup := clairSetup{key: newKey()}
	for name, pushed := range map[string]*pushedImage{images.Clair: &setup.image, images.PostgreSQL: &setup.database} {
		image, err := e.loadImage(name)
		if err != nil {
			return "", err
		}
		if _, err := e.Push(ctx, name, image); err != nil {
			return "", err
		}
		digest, err := image.Digest()
		if err != nil {
			return "", err
		}
		*pushed = pushedImage{Repository: e.repository(name), Digest: digest.String()}
	}
	e.clair = &setup
	return "a password and a pre-shared key, made here", e.Apply(ctx, "clair.yaml", map[string]string{
		"Namespace": ClairNamespace, "Label": storyLabel, "Password": rand.Text(), "Key": setup.key, "Feeds": feedsURL,
		"URL": clairURL, "Webhooks": clairWebhooks, "Shop": ShopNamespace, "Scanner": ScannerName,
	})
}

// newKey is a pre-shared key as Clair takes it.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

func (e *Environment) deployOperatorAndClair(ctx context.Context) (string, error) {
	told, err := e.deployOperator(ctx)
	if err != nil {
		return "", err
	}
	return told + "; " + clairURL, e.RolledOut(ctx, ClairNamespace, ClairDatabaseDeployment, ClairDeployment)
}

