package story

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// Times of the second scenario.
const (
	// webhookTimeout is the maximum time from the message to Clair's webhook. Clair checks for changes once a minute, and then sends the
	// webhooks of the previous interval.
	webhookTimeout = 4 * time.Minute
	// quietPeriod is longer than the delay of the demo's receivers.
	quietPeriod = 8 * time.Second
)

// newVulnerabilitySteps returns the steps of the second scenario: an advisory is added.
func (l *lifecycle) newVulnerabilitySteps() []Step {
	steps := []Step{
		{"Second act: an advisory is added, a newer vulnerability database is published", l.publish},
		{"A message about exactly that arrives in Slack", l.checkNew},
		{"Where it does not apply, nothing is said", l.checkSilence},
		{"No image was pulled and none was listed again", l.checkNoWork},
	}
	if l.Backend == v1alpha1.BackendClair {
		steps[0].Name = "Second act: an advisory is added to those of Debian"
		steps = slices.Insert(steps, 2, Step{"Clair's own webhook comes to the notifier", l.checkWebhook})
	}
	return steps
}

func (l *lifecycle) publish(ctx context.Context) (string, error) {
	var err error
	if l.mark, err = l.Pulls.Mark(); err != nil {
		return "", err
	}
	l.jobs = len(l.Jobs.All())
	if l.versions, err = l.dataVersions(ctx); err != nil {
		return "", err
	}
	if l.Backend == v1alpha1.BackendClair {
		if l.indexed, err = l.clairIndexed(ctx); err != nil {
			return "", err
		}
		if l.before, err = l.webhooks(ctx); err != nil {
			return "", err
		}
	}
	return l.publishAdvisories(ctx, "advisories-next")
}

// dataVersions returns the data versions that each image of the shop was last matched with, by namespace and digest.
func (e *Environment) dataVersions(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	for _, namespace := range e.shopNamespaces() {
		found, err := e.Findings(ctx, namespace)
		if err != nil {
			return nil, err
		}
		for _, img := range found {
			versions[namespace+" "+img.Digest] = img.DataVersion
		}
	}
	return versions, nil
}

func (l *lifecycle) checkNew(ctx context.Context) (string, error) {
	began := time.Now()
	news, err := l.changeMessage(ctx, l.newDataTimeout(), v1alpha1.ChangeNew)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q, %.0f s after it was published", news.Headline, time.Since(began).Seconds()), nil
}

// checkSilence waits until every image was matched with the new data, and then checks for a time that no message arrives.
func (l *lifecycle) checkSilence(ctx context.Context) (string, error) {
	err := Eventually(ctx, shortTimeout, func(ctx context.Context) error {
		now, err := l.dataVersions(ctx)
		for img, before := range l.versions {
			if err == nil && now[img] == before {
				err = fmt.Errorf("%s was not matched with newer data than %q", img, before)
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return l.Staging() + " heard nothing more", Consistently(ctx, quietPeriod, func(ctx context.Context) error {
		messages, err := l.Messages(ctx, l.Staging())
		if err == nil && len(messages) != 1 {
			err = fmt.Errorf("expected no second message about %s, there are %d messages; the last one:\n%s",
				l.Staging(), len(messages), messages[len(messages)-1].Text)
		}
		return err
	})
}

func (l *lifecycle) checkNoWork(ctx context.Context) (string, error) {
	if jobs := l.Jobs.All(); len(jobs) != l.jobs {
		return "", fmt.Errorf("expected no new Job that lists what is in an image, there are %d: %v", len(jobs)-l.jobs, jobs)
	}
	// The node keeps requesting the image that does not exist.
	reads, err := l.Pulls.ReadsSince(l.mark, images.Web, images.API, images.Migrate, images.Cache, images.Static)
	if err != nil {
		return "", err
	}
	if len(reads) > 0 {
		return "", fmt.Errorf("expected no request to the registry for images of the shop, there were %d, first %q", len(reads), reads[0])
	}
	if l.Backend == v1alpha1.BackendClair {
		indexed, err := l.clairIndexed(ctx)
		if err != nil {
			return "", err
		}
		if indexed != l.indexed {
			return "", fmt.Errorf("expected Clair to be told of no image again, it was %d times", indexed-l.indexed)
		}
	}
	if l.Pulls == nil {
		return "no new Job (the registry's access log is not known here)", nil
	}
	return "no new Job, no request to the registry", nil
}
