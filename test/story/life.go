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

// NewVulnerability is the one whose life the story tells: advisories-next adds it to openssl of Debian 12, and so to
// shop/web only, and advisories-fix says what fixes it.
const NewVulnerability = "CVE-2099-10001"

// How long it may take until a message is in Slack.
const (
	// announceWithin is that of a new database.
	announceWithin = 75 * time.Second
	// clairAnnouncesWithin is the same with Clair, which looks at its sources once a minute.
	clairAnnouncesWithin = 4 * time.Minute
)

// life is what an act must know about those before it.
type life struct {
	*Environment
	// told is the number of messages about the shop so far, that about the first scan included.
	told int
	mark int64
	jobs int
	// indexed counts what Clair was told before, before what it has told.
	indexed int
	before  webhooks
	// versions are those of the data that each image was matched with before, by namespace and digest.
	versions map[string]string
	// counts are those of the shop's Scanner before the exception, which ends at expires.
	counts  v1alpha1.FindingCounts
	expires time.Time
	// lines are what the shop's findings were before web was built again.
	lines []Line
}

// Acts are the whole story in an environment that is set up. Without the story's own advisories it ends after the first scan.
func (e *Environment) Acts() []Step {
	if e.Upstream {
		return e.FirstAct()
	}
	l := &life{Environment: e, told: 1}
	return slices.Concat(e.FirstAct(), l.appears(), l.getsAFix(), l.isExcepted(), l.isFixed())
}

// message waits for the shop's next message.
func (l *life) message(ctx context.Context, within time.Duration) (Message, error) {
	var next Message
	err := Eventually(ctx, within, func(ctx context.Context) error {
		messages, err := l.Messages(ctx, l.Shop())
		if err != nil {
			return err
		}
		if len(messages) <= l.told {
			return fmt.Errorf("no message about %s in Slack%s", NewVulnerability, l.receiverProblem(ctx, l.Shop()))
		}
		next = messages[l.told]
		return nil
	})
	l.told++
	return next, err
}

// news waits for the shop's next message, which must tell one change of the new vulnerability and nothing else.
func (l *life) news(ctx context.Context, within time.Duration, change v1alpha1.Change) (Message, error) {
	news, err := l.message(ctx, within)
	if err != nil {
		return Message{}, err
	}
	want := l.linesOf(change)
	if !slices.Equal(want, news.told()) || news.Summary || len(news.Notices) > 0 || news.Findings != len(want) {
		return Message{}, fmt.Errorf("expected a message about %v alone, it is:\n%s", want, news.Text)
	}
	return news, nil
}

// linesOf are the new vulnerability's lines in a message: it is in two packages of one image.
func (l *life) linesOf(change v1alpha1.Change) []string {
	web := l.repository(images.Web)
	return []string{
		fmt.Sprintf("%s: %s in libssl3 of %s", change, NewVulnerability, web),
		fmt.Sprintf("%s: %s in openssl of %s", change, NewVulnerability, web),
	}
}

// dataWithin is how long it may take until a message about new data is in Slack.
func (l *life) dataWithin() time.Duration {
	if l.Backend == v1alpha1.BackendClair {
		return clairAnnouncesWithin
	}
	return announceWithin
}

// publishAdvisories serves the advisories of further directories of the fixtures beside the first.
func (l *life) publishAdvisories(ctx context.Context, further ...string) (string, error) {
	if l.Backend == v1alpha1.BackendClair {
		return "read by Clair within a minute", l.publishFeeds(ctx, append([]string{"advisories"}, further...)...)
	}
	err := l.publishDatabase(ctx, further...)
	return "built " + l.Database.Built.Format(time.RFC3339), err
}

// scannerCounts are those that the shop's Scanner shows.
func (l *life) scannerCounts(ctx context.Context) (v1alpha1.FindingCounts, error) {
	scanner, err := l.Scanner(ctx, l.Shop())
	if err != nil {
		return v1alpha1.FindingCounts{}, err
	}
	return scanner.Status.Findings, nil
}

// checkMessages waits for a time in which nothing more may come, neither about the shop nor about staging.
func (l *life) checkMessages(ctx context.Context) (string, error) {
	wanted := map[string]int{l.Shop(): l.told, l.Staging(): 1}
	err := Throughout(ctx, silence, func(ctx context.Context) error {
		for namespace, want := range wanted {
			messages, err := l.Messages(ctx, namespace)
			if err != nil {
				return err
			}
			if len(messages) != want {
				return fmt.Errorf("expected %d messages about %s, there are %d; the last one:\n%s", want, namespace, len(messages), messages[len(messages)-1].Text)
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d about %s, 1 about %s", l.told, l.Shop(), l.Staging()), errors.Join(l.CheckLimits(ctx, l.Shop()), l.CheckLimits(ctx, l.Staging()))
}
