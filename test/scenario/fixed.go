package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// updatedTag is the tag of the rebuilt image of web.
const updatedTag = "1.1"

// itemsInSection is the maximum number of findings of one image that a message names. The message counts the rest.
const itemsInSection = 10

// fixSteps returns the steps of the fifth scenario: web is rebuilt and rolled out.
func (l *lifecycle) fixSteps() []Step {
	return []Step{
		{"Fifth scenario: web is built again with the fixed OpenSSL, and rolled out", l.rollOut},
		{"A message says what that has fixed", l.checkFixed},
		{"No message was sent twice, beyond Slack's limits, or about " + l.Staging(), l.checkMessages},
	}
}

func (l *lifecycle) rollOut(ctx context.Context) (string, error) {
	found, err := l.Findings(ctx, l.Production())
	if err != nil {
		return "", err
	}
	l.lines = lines(found, announced)
	image, err := l.loadImage(images.WebUpdated)
	if err != nil {
		return "", err
	}
	reference := l.repository(images.Web) + ":" + updatedTag
	if _, err := build.Push(ctx, reference, image); err != nil {
		return "", err
	}
	if _, err := l.Kubectl(ctx, "--namespace", l.Production(), "set", "image", "deployment/web", "web="+reference); err != nil {
		return "", err
	}
	return "deployment/web runs " + reference, l.WaitForRollout(ctx, l.Production(), "deployment/web")
}

// checkFixed waits for the message and compares it with the findings in the store before and after the rollout.
func (l *lifecycle) checkFixed(ctx context.Context) (string, error) {
	began := time.Now()
	message, err := l.message(ctx, l.scanTimeout())
	if err != nil {
		return "", err
	}
	found, err := l.Findings(ctx, l.Production())
	if err != nil {
		return "", err
	}
	want := fixed(l.lines, AllLines(found))
	if err := requireOnlyFixed(message, want); err != nil {
		return "", err
	}
	for _, line := range l.linesOf(v1alpha1.ChangeFixed) {
		if !slices.Contains(message.announcements(), line) {
			return "", fmt.Errorf("expected the message to name %q, it is:\n%s", line, message.Text)
		}
	}
	return fmt.Sprintf("%q, %.0f s after the rollout", message.Headline, time.Since(began).Seconds()), nil
}

// fixed returns the lines that are only in before, in the form of a message.
func fixed(before, now []Line) []string {
	var gone []string
	for _, line := range before {
		if !slices.ContainsFunc(now, func(l Line) bool { return l.String() == line.String() }) {
			line.Change = v1alpha1.ChangeFixed
			gone = append(gone, line.announcement())
		}
	}
	slices.Sort(gone)
	return gone
}

// requireOnlyFixed checks that a message contains only the expected lines. A long message contains only the most severe ones.
func requireOnlyFixed(news Message, want []string) error {
	named := news.announcements()
	switch {
	case news.Summary || len(news.Notices) > 0 || news.Findings != len(want) || len(named) != min(len(want), itemsInSection):
	case slices.ContainsFunc(named, func(line string) bool { return !slices.Contains(want, line) }):
	default:
		return nil
	}
	return fmt.Errorf("expected a message about %v alone, it is:\n%s", want, news.Text)
}
