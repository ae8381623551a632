package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// NewVulnerability is the one that advisories-next adds: in openssl of Debian 12, and so in shop/web only.
const NewVulnerability = "CVE-2099-10001"

// Times of the second act.
const (
	// announceWithin is how long it may take from a new database to a message in Slack.
	announceWithin = 75 * time.Second
	// clairAnnouncesWithin is the same with Clair, which looks at its sources once a minute.
	clairAnnouncesWithin = 4 * time.Minute
	// webhookWithin is how long Clair's webhook may take beyond that: it looks for news once a minute, and sends those of
	// the time before.
	webhookWithin = 4 * time.Minute
	// silence is longer than a receiver of the story waits before it tells something.
	silence = 8 * time.Second
)

// secondAct is what the act must know about the time before it.
type secondAct struct {
	*Environment
	mark int64
	jobs int
	// indexed counts what Clair was told before, before what it has told.
	indexed int
	before  webhooks
	// versions are those of the data that each image was matched with before, by namespace and digest.
	versions map[string]string
}

// SecondAct adds an advisory. Without the story's own database there is no such act.
func (e *Environment) SecondAct() []Step {
	if e.Upstream {
		return nil
	}
	act := &secondAct{Environment: e}
	steps := []Step{
		{"Second act: an advisory is added, a newer vulnerability database is published", act.publish},
		{"A message about exactly that arrives in Slack", act.checkMessage},
		{"Where it does not apply, nothing is said", act.checkSilence},
		{"No image was pulled and none was listed again", act.checkNoWork},
		{"No message was sent twice or beyond Slack's limits", act.checkMessages},
	}
	if e.Backend == v1alpha1.BackendClair {
		steps[0].Name = "Second act: an advisory is added to those of Debian"
		steps = slices.Insert(steps, 2, Step{"Clair's own webhook comes to the notifier", act.checkWebhook})
	}
	return steps
}

func (a *secondAct) publish(ctx context.Context) (string, error) {
	var err error
	if a.mark, err = a.Pulls.Mark(); err != nil {
		return "", err
	}
	a.jobs = len(a.Jobs.All())
	if a.versions, err = a.dataVersions(ctx); err != nil {
		return "", err
	}
	if a.Backend == v1alpha1.BackendClair {
		if a.indexed, err = a.clairIndexed(ctx); err != nil {
			return "", err
		}
		if a.before, err = a.webhooks(ctx); err != nil {
			return "", err
		}
		return "read by Clair within a minute", a.publishFeeds(ctx, "advisories", "advisories-next")
	}
	if err := a.publishDatabase(ctx, "advisories-next"); err != nil {
		return "", err
	}
	return "built " + a.Database.Built.Format(time.RFC3339), nil
}

// dataVersions are those that each image of the shop was matched with last, by namespace and digest.
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

func (a *secondAct) checkMessage(ctx context.Context) (string, error) {
	began := time.Now()
	var news Message
	within := announceWithin
	if a.Backend == v1alpha1.BackendClair {
		within = clairAnnouncesWithin
	}
	err := Eventually(ctx, within, func(ctx context.Context) error {
		messages, err := a.Messages(ctx, a.Shop())
		if err != nil {
			return err
		}
		if len(messages) < 2 {
			return fmt.Errorf("no message about %s in Slack%s", NewVulnerability, a.receiverProblem(ctx, a.Shop()))
		}
		news = messages[1]
		return nil
	})
	if err != nil {
		return "", err
	}
	web := a.repository(images.Web)
	want := []string{NewVulnerability + " in libssl3 of " + web, NewVulnerability + " in openssl of " + web}
	got := []string{}
	for _, line := range news.Lines {
		got = append(got, line.String())
	}
	slices.Sort(got)
	if !slices.Equal(want, got) || news.Summary || news.Findings != len(want) {
		return "", fmt.Errorf("expected a message about %v alone, it is:\n%s", want, news.Text)
	}
	return fmt.Sprintf("%q, %.0f s after it was published", news.Headline, time.Since(began).Seconds()), nil
}

// checkSilence waits until every image was matched with the new data, and then a little longer.
func (a *secondAct) checkSilence(ctx context.Context) (string, error) {
	err := Eventually(ctx, soon, func(ctx context.Context) error {
		now, err := a.dataVersions(ctx)
		for img, before := range a.versions {
			if err == nil && now[img] == before {
				err = fmt.Errorf("%s was not matched with newer data than %q", img, before)
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return a.Staging() + " heard nothing more", Throughout(ctx, silence, func(ctx context.Context) error {
		messages, err := a.Messages(ctx, a.Staging())
		if err == nil && len(messages) != 1 {
			err = fmt.Errorf("expected no second message about %s, there are %d messages; the last one:\n%s",
				a.Staging(), len(messages), messages[len(messages)-1].Text)
		}
		return err
	})
}

func (a *secondAct) checkNoWork(ctx context.Context) (string, error) {
	if jobs := a.Jobs.All(); len(jobs) != a.jobs {
		return "", fmt.Errorf("expected no new Job that lists what is in an image, there are %d: %v", len(jobs)-a.jobs, jobs)
	}
	// The node goes on asking for the image that does not exist.
	reads, err := a.Pulls.ReadsSince(a.mark, images.Web, images.API, images.Migrate, images.Cache, images.Static)
	if err != nil {
		return "", err
	}
	if len(reads) > 0 {
		return "", fmt.Errorf("expected no request to the registry for images of the shop, there were %d, first %q", len(reads), reads[0])
	}
	if a.Backend == v1alpha1.BackendClair {
		indexed, err := a.clairIndexed(ctx)
		if err != nil {
			return "", err
		}
		if indexed != a.indexed {
			return "", fmt.Errorf("expected Clair to be told of no image again, it was %d times", indexed-a.indexed)
		}
	}
	if a.Pulls == nil {
		return "no new Job (the registry's access log is not known here)", nil
	}
	return "no new Job, no request to the registry", nil
}

func (a *secondAct) checkMessages(ctx context.Context) (string, error) {
	for namespace, want := range map[string]int{a.Shop(): 2, a.Staging(): 1} {
		messages, err := a.Messages(ctx, namespace)
		if err != nil {
			return "", err
		}
		if len(messages) != want {
			return "", fmt.Errorf("expected %d messages about %s, there are %d", want, namespace, len(messages))
		}
	}
	return fmt.Sprintf("2 about %s, 1 about %s", a.Shop(), a.Staging()), errors.Join(a.CheckLimits(ctx, a.Shop()), a.CheckLimits(ctx, a.Staging()))
}
