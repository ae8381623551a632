package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/images"
)

// newVulnerability is the one that advisories-next adds: in openssl of Debian 12, and so in shop/web only.
const newVulnerability = "CVE-2099-10001"

// Times of the second act.
const (
	// announceWithin is how long it may take from a new database to a message in Slack.
	announceWithin = 75 * time.Second
	// silence is longer than a receiver of the story waits before it tells something.
	silence = 8 * time.Second
)

// secondAct is what the act must know about the time before it.
type secondAct struct {
	*Environment
	mark int64
	jobs int
}

// SecondAct adds an advisory. Without the story's own database there is no such act.
func (e *Environment) SecondAct() []Step {
	if e.Upstream {
		return nil
	}
	act := &secondAct{Environment: e}
	return []Step{
		{"Second act: an advisory is added, a newer vulnerability database is published", act.publish},
		{"A message about exactly that arrives in Slack", act.checkMessage},
		{"Where it does not apply, nothing is said", act.checkSilence},
		{"No image was pulled and none was listed again", act.checkNoWork},
		{"No message was sent twice or beyond Slack's limits", act.checkMessages},
	}
}

func (a *secondAct) publish(ctx context.Context) (string, error) {
	var err error
	if a.mark, err = a.Pulls.Mark(); err != nil {
		return "", err
	}
	a.jobs = len(a.Jobs.All())
	if err := a.publishDatabase(ctx, "advisories-next"); err != nil {
		return "", err
	}
	return "built " + a.Database.Built.Format(time.RFC3339), nil
}

func (a *secondAct) checkMessage(ctx context.Context) (string, error) {
	began := time.Now()
	var news Message
	err := Eventually(ctx, announceWithin, func(ctx context.Context) error {
		messages, err := a.Messages(ctx, ShopNamespace)
		if err != nil {
			return err
		}
		if len(messages) < 2 {
			return fmt.Errorf("no message about %s in Slack%s", newVulnerability, a.receiverProblem(ctx, ShopNamespace))
		}
		news = messages[1]
		return nil
	})
	if err != nil {
		return "", err
	}
	web := a.repository(images.Web)
	want := []string{newVulnerability + " in libssl3 of " + web, newVulnerability + " in openssl of " + web}
	got := []string{}
	for _, line := range news.Lines {
		got = append(got, line.String())
	}
	slices.Sort(got)
	if !slices.Equal(want, got) || news.Summary || news.Findings != len(want) {
		return "", fmt.Errorf("expected a message about %v alone, it is:\n%s", want, news.Text)
	}
	return fmt.Sprintf("%q, %.0f s after the database was there", news.Headline, time.Since(began).Seconds()), nil
}

// checkSilence waits until every image was matched with the new database, and then a little longer.
func (a *secondAct) checkSilence(ctx context.Context) (string, error) {
	build := a.Database.Built.Format(time.RFC3339)
	err := Eventually(ctx, soon, func(ctx context.Context) error {
		for _, namespace := range []string{ShopNamespace, StagingNamespace} {
			found, err := a.Findings(ctx, namespace)
			if err != nil {
				return err
			}
			for _, img := range found {
				if !strings.HasPrefix(img.DataVersion, build) {
					return fmt.Errorf("%s in %s was not matched with the database of %s, but %q", img.References, namespace, build, img.DataVersion)
				}
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return "shop-staging heard nothing more", Throughout(ctx, silence, func(ctx context.Context) error {
		messages, err := a.Messages(ctx, StagingNamespace)
		if err == nil && len(messages) != 1 {
			err = fmt.Errorf("expected no second message about %s, there are %d messages; the last one:\n%s",
				StagingNamespace, len(messages), messages[len(messages)-1].Text)
		}
		return err
	})
}

func (a *secondAct) checkNoWork(context.Context) (string, error) {
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
	if a.Pulls == nil {
		return "no new Job (the registry's access log is not known here)", nil
	}
	return "no new Job, no request to the registry", nil
}

func (a *secondAct) checkMessages(ctx context.Context) (string, error) {
	for namespace, want := range map[string]int{ShopNamespace: 2, StagingNamespace: 1} {
		messages, err := a.Messages(ctx, namespace)
		if err != nil {
			return "", err
		}
		if len(messages) != want {
			return "", fmt.Errorf("expected %d messages about %s, there are %d", want, namespace, len(messages))
		}
	}
	return "2 about shop, 1 about shop-staging", errors.Join(a.CheckLimits(ctx, ShopNamespace), a.CheckLimits(ctx, StagingNamespace))
}
