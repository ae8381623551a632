package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// NewVulnerability is the vulnerability of the scenarios. advisories-next adds it to openssl of Debian 12, and so only to shop/web.
// advisories-fix adds its fixed version.
const NewVulnerability = "CVE-2099-10001"

// Maximum times until a message is in Slack.
const (
	// announceTimeout is the maximum time after a new database.
	announceTimeout = 75 * time.Second
	// clairAnnounceTimeout is the same with Clair, which reads its sources once a minute.
	clairAnnounceTimeout = 4 * time.Minute
)

// lifecycle is the state that one scenario passes to the next.
type lifecycle struct {
	*Environment
	// received is the number of messages about production so far, including the one about the first scan.
	received int
	mark     int64
	jobs     int
	// indexed is the number of index requests to Clair before a scenario, before holds the notifier's counters of webhooks.
	indexed int
	before  webhooks
	// versions are the data versions that each image was matched with before, by namespace and digest.
	versions map[string]string
	// counts are the counts of the Scanner in production before the exception. expires is when the exception expires.
	counts  v1alpha1.FindingCounts
	expires time.Time
	// lines are the findings in production before web was rebuilt.
	lines []Line
}

// Scenarios returns all scenarios in an environment that is set up. Without the project's own advisories, only the first scan is run.
func (e *Environment) Scenarios() []Step {
	if e.Upstream {
		return e.FirstScan()
	}
	l := &lifecycle{Environment: e, received: 1}
	return slices.Concat(e.FirstScan(), l.newVulnerabilitySteps(), l.fixAvailableSteps(), l.exceptionSteps(), l.fixSteps())
}

// message waits for the next message about production.
func (l *lifecycle) message(ctx context.Context, within time.Duration) (Message, error) {
	var next Message
	err := wait.Eventually(ctx, within, wait.Normally, func(ctx context.Context) error {
		messages, err := l.Messages(ctx, l.Production())
		if err != nil {
			return err
		}
		if len(messages) <= l.received {
			return fmt.Errorf("no message about %s in Slack%s", NewVulnerability, l.receiverProblem(ctx, l.Production()))
		}
		next = messages[l.received]
		return nil
	})
	l.received++
	return next, err
}

// changeMessage waits for the next message about production, which must contain one change of the new vulnerability and nothing else.
func (l *lifecycle) changeMessage(ctx context.Context, within time.Duration, change v1alpha1.Change) (Message, error) {
	news, err := l.message(ctx, within)
	if err != nil {
		return Message{}, err
	}
	want := l.linesOf(change)
	if !slices.Equal(want, news.announcements()) || news.Summary || len(news.Notices) > 0 || news.Findings != len(want) {
		return Message{}, fmt.Errorf("expected a message about %v alone, it is:\n%s", want, news.Text)
	}
	return news, nil
}

// linesOf returns the new vulnerability's lines in a message: it is in two packages of one image.
func (l *lifecycle) linesOf(change v1alpha1.Change) []string {
	web := l.repository(images.Web)
	return []string{
		fmt.Sprintf("%s: %s in libssl3 of %s", change, NewVulnerability, web),
		fmt.Sprintf("%s: %s in openssl of %s", change, NewVulnerability, web),
	}
}

// newDataTimeout returns the maximum time from new data to a message in Slack.
func (l *lifecycle) newDataTimeout() time.Duration {
	if l.Backend == v1alpha1.BackendClair {
		return clairAnnounceTimeout
	}
	return announceTimeout
}

// publishAdvisories serves the advisories of further directories of the fixtures in addition to the first.
func (l *lifecycle) publishAdvisories(ctx context.Context, further ...string) (string, error) {
	if l.Backend == v1alpha1.BackendClair {
		return "read by Clair within a minute", l.publishFeeds(ctx, append([]string{"advisories"}, further...)...)
	}
	err := l.PublishDatabase(ctx, further...)
	return "built " + l.Database.Built.Format(time.RFC3339), err
}

// scannerCounts returns the counts in the status of the Scanner in production.
func (l *lifecycle) scannerCounts(ctx context.Context) (v1alpha1.FindingCounts, error) {
	scanner, err := l.Scanner(ctx, l.Production())
	if err != nil {
		return v1alpha1.FindingCounts{}, err
	}
	return scanner.Status.Findings, nil
}

// checkMessages checks for a time that no further message arrives, about production or about staging.
func (l *lifecycle) checkMessages(ctx context.Context) (string, error) {
	wanted := map[string]int{l.Production(): l.received, l.Staging(): 1}
	err := wait.Consistently(ctx, quietPeriod, wait.Normally, func(ctx context.Context) error {
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
	return fmt.Sprintf("%d about %s, 1 about %s", l.received, l.Production(), l.Staging()), errors.Join(l.CheckLimits(ctx, l.Production()), l.CheckLimits(ctx, l.Staging()))
}
