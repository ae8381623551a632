package scenario

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/clairfeed"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// ClairNamespace is the namespace of config/components/clair-trial.
const ClairNamespace = "clair"

const (
	// clairURL is the URL of Clair in config/components/clair-trial.
	clairURL = "http://clair." + ClairNamespace + ".svc:6060"
	// clairWebhooks is the URL of the notifier for Clair's webhooks in config/components/clair-trial.
	clairWebhooks = "http://scanner-operator-notifier." + SystemNamespace + ".svc:8444"
	// feedsURL is the URL of the demo's advisories for Clair.
	feedsURL = "http://advisories." + InfraNamespace + ".svc"
)

// Deployments of config/components/clair-trial.
const (
	ClairDeployment         = "deployment/clair"
	ClairDatabaseDeployment = "deployment/clair-database"
)

// clairSetup holds the values that differ between installations of Clair.
type clairSetup struct {
	image pushedImage
	// key is the pre-shared key, in base64.
	key string
	// indexed is the number of index requests to Clair before the demo's Scanners were created.
	indexed int
}

// pushedImage is an image by digest.
type pushedImage struct{ Repository, Digest string }

func (e *Environment) publishFirstFeeds(ctx context.Context) (string, error) {
	if err := e.MakeNamespace(ctx, InfraNamespace); err != nil {
		return "", err
	}
	return feedsURL, e.publishFeeds(ctx, "advisories")
}

// publishFeeds serves the advisories of the given directories of the fixtures to Clair, instead of the earlier ones.
func (e *Environment) publishFeeds(ctx context.Context, names ...string) error {
	out := e.bin("fixtures", "feeds")
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
	return e.WaitForRollout(ctx, InfraNamespace, "deployment/advisories")
}

// removeFeeds removes the local copy of the advisories.
func (e *Environment) removeFeeds() error { return os.RemoveAll(e.bin("fixtures", "feeds")) }

// prepareClair does what a user of config/components/clair-trial does before the installation. It creates new secrets each time.
func (e *Environment) prepareClair(ctx context.Context) (string, error) {
	pushed, err := e.pushPinned(ctx, images.Clair)
	if err := errors.Join(err, e.pushPostgreSQL(ctx)); err != nil {
		return "", err
	}
	e.clair = &clairSetup{image: pushed, key: newKey()}
	return "a password and a pre-shared key, made here", e.Apply(ctx, "clair.yaml", map[string]string{
		"Namespace": ClairNamespace, "Label": Label, "Password": rand.Text(), "Key": e.clair.key, "Feeds": feedsURL,
		"URL": clairURL, "Webhooks": clairWebhooks, "ScannerNamespace": e.WithBackend(v1alpha1.BackendClair).Production(), "Scanner": ScannerName,
	})
}

// newKey returns a new pre-shared key in the form that Clair accepts.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// waitForClair waits until Clair, which was installed with the operator, is ready.
func (e *Environment) waitForClair(ctx context.Context) (string, error) {
	return clairURL, e.WaitForRollout(ctx, ClairNamespace, ClairDatabaseDeployment, ClairDeployment)
}

// checkIndexedOnce checks that Clair received one index request for each image.
func (e *Environment) checkIndexedOnce(ctx context.Context) (string, error) {
	indexed, err := e.clairIndexed(ctx)
	if err != nil {
		return "", err
	}
	if indexed -= e.clair.indexed; indexed != productionImages {
		return "", fmt.Errorf("expected Clair to index each of the %d images once, it got %d requests", productionImages, indexed)
	}
	return fmt.Sprintf("Clair got one request to index each of %d images", indexed), nil
}

// clairIndexed returns the number of index requests since Clair was started.
func (e *Environment) clairIndexed(ctx context.Context) (int, error) {
	metrics, err := e.Clientset.CoreV1().Services(ClairNamespace).ProxyGet("http", "clair", "introspection", "metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask Clair for its metrics: %w", err)
	}
	return total(string(metrics), "clair_http_indexerv1_request_total{", `handler="/indexer/api/v1/index_report",method="post"`)
}

// webhooks holds the notifier's counters of Clair's webhooks since its start.
type webhooks struct {
	// done is the number of handled webhooks. marked is the number of ImageScans in them: all of the Scanner in production, Clair's only
	// target.
	done, marked int
}

func (e *Environment) webhooks(ctx context.Context) (webhooks, error) {
	pods := e.Clientset.CoreV1().Pods(SystemNamespace)
	listed, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=notifier"})
	if err != nil {
		return webhooks{}, err
	}
	if len(listed.Items) != 1 {
		return webhooks{}, fmt.Errorf("expected one pod of the notifier, there are %d", len(listed.Items))
	}
	metrics, err := pods.ProxyGet("http", listed.Items[0].Name, "8080", "metrics", nil).DoRaw(ctx)
	if err != nil {
		return webhooks{}, fmt.Errorf("ask the notifier for its metrics: %w", err)
	}
	done, err := total(string(metrics), "scanner_notifier_clair_webhooks_total{", `outcome="Done"`)
	if err != nil {
		return webhooks{}, err
	}
	marked, err := total(string(metrics), "scanner_notifier_clair_images_marked_total", "")
	return webhooks{done, marked}, err
}

// total returns the sum of the samples in Prometheus' text format whose line begins with prefix and contains holding.
func total(metrics, prefix, containing string) (int, error) {
	sum := 0
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, prefix) || !strings.Contains(line, containing) {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("sample %q: %w", line, err)
		}
		sum += int(value)
	}
	return sum, nil
}

// checkWebhook waits until the notifier has handled a webhook that is newer than those before the second scenario and is about an image
// of the application.
func (l *lifecycle) checkWebhook(ctx context.Context) (string, error) {
	began := time.Now()
	var now webhooks
	err := wait.Eventually(ctx, webhookTimeout, wait.Normally, func(ctx context.Context) error {
		var err error
		switch now, err = l.webhooks(ctx); {
		case err != nil:
			return err
		case now.done <= l.before.done:
			return errors.New("no webhook of Clair has come to the notifier since the advisory was added")
		case now.marked <= l.before.marked:
			return fmt.Errorf("since the advisory was added %d webhooks of Clair have come to the notifier, none about an image of %s", now.done-l.before.done, l.Production())
		}
		return nil
	})
	return fmt.Sprintf("%.0f s after the message at the latest; ImageScans marked: %d", time.Since(began).Seconds(), now.marked-l.before.marked), err
}

// ClairKey returns Clair's pre-shared key, in base64; empty without Clair.
func (e *Environment) ClairKey() string {
	if e.clair == nil {
		return ""
	}
	return e.clair.key
}
