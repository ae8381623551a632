package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

const (
	// exceptionName is the name of the demo's exception.
	exceptionName = "openssl-handshake"
	// exceptionDuration is how long the exception is in force: long enough to read about it.
	exceptionDuration = 30 * time.Second
)

// exceptionSteps returns the steps of the fourth scenario: the application's team accepts the risk for a limited time.
func (l *lifecycle) exceptionSteps() []Step {
	return []Step{
		{fmt.Sprintf("Fourth scenario: the team takes the risk for %.0f seconds, as a VulnerabilityException", exceptionDuration.Seconds()), l.createException},
		{"It is counted as suppressed, and no more as critical", l.checkSuppressed},
		{"Slack gets a notice at once that the exception ends soon", l.checkExpiryNotice},
		{"The exception ends, and its findings are news again", l.checkExpired},
		{"Through all of this no image was pulled and none was listed again", l.checkNoWork},
	}
}

func (l *lifecycle) createException(ctx context.Context) (string, error) {
	var err error
	if l.counts, err = l.scannerCounts(ctx); err != nil {
		return "", err
	}
	// Kubernetes times are whole seconds.
	l.expires = time.Now().Add(exceptionDuration).UTC().Truncate(time.Second)
	return exceptionName + " until " + l.expires.Format(time.TimeOnly), l.Apply(ctx, "exception.yaml", map[string]string{
		"Name": exceptionName, "Namespace": l.Production(), "Vulnerability": NewVulnerability,
		"Image": l.repository(images.Web), "Expires": l.expires.Format(time.RFC3339),
	})
}

// checkSuppressed compares the counts of the Scanner, of the image and of the exception.
func (l *lifecycle) checkSuppressed(ctx context.Context) (string, error) {
	covered := int32(len(l.linesOf(v1alpha1.ChangeNew)))
	want := l.counts
	want.Critical, want.Fixable, want.Suppressed = want.Critical-covered, want.Fixable-covered, covered
	if l.Backend == v1alpha1.BackendGrype {
		want.KnownExploited -= covered // Clair does not know
	}
	err := wait.Eventually(ctx, shortTimeout, wait.Normally, func(ctx context.Context) error {
		got, err := l.scannerCounts(ctx)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("expected the Scanner of %s to count %+v, it counts %+v", l.Production(), want, got)
		}
		scan, err := l.ImageScanOf(ctx, l.Production(), l.repository(images.Web))
		if err != nil {
			return err
		}
		if counts := scan.Status.Findings; counts == nil || counts.Suppressed != covered {
			return fmt.Errorf("expected the ImageScan of %s to count %d as suppressed, it counts %+v", images.Web, covered, counts)
		}
		return l.requireException(ctx, v1alpha1.ReasonInForce, covered)
	})
	return fmt.Sprintf("critical %d → %d, suppressed %d", l.counts.Critical, want.Critical, covered), err
}

// requireException checks the reason and the count in the exception's status.
func (l *lifecycle) requireException(ctx context.Context, reason string, findings int32) error {
	var exception v1alpha1.VulnerabilityException
	if err := l.Client.Get(ctx, client.ObjectKey{Namespace: l.Production(), Name: exceptionName}, &exception); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(exception.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != reason {
		return fmt.Errorf("expected the exception's condition Ready to have the reason %s, it is %+v", reason, ready)
	}
	if got := exception.Status.Findings; got == nil || *got != findings {
		return fmt.Errorf("expected the exception to cover %d findings, it says %v", findings, got)
	}
	return nil
}

func (l *lifecycle) checkExpiryNotice(ctx context.Context) (string, error) {
	message, err := l.message(ctx, shortTimeout/2)
	if err != nil {
		return "", err
	}
	notices := strings.Join(message.Notices, "\n")
	if len(message.Lines) > 0 || message.Summary || len(message.Notices) != 1 || !strings.Contains(notices, l.Production()+"/"+exceptionName) {
		return "", fmt.Errorf("expected a message about the exception %s alone, it is:\n%s", exceptionName, message.Text)
	}
	return fmt.Sprintf("%q", message.Headline), nil
}

// checkExpired waits for the message after the exception has expired. An earlier message would be read instead, and fail the check of
// its time.
func (l *lifecycle) checkExpired(ctx context.Context) (string, error) {
	news, err := l.changeMessage(ctx, time.Until(l.expires)+shortTimeout, v1alpha1.ChangeNew)
	if err != nil {
		return "", err
	}
	if news.Time.Before(l.expires) || slices.ContainsFunc(news.Lines, func(line Line) bool { return !line.ExceptionEnded }) {
		return "", fmt.Errorf("expected a message after %s, which says of each finding that an exception ended, it is of %s:\n%s",
			l.expires.Format(time.TimeOnly), news.Time.Format(time.TimeOnly), news.Text)
	}
	return fmt.Sprintf("%q, %.0f s after it ended", news.Headline, news.Time.Sub(l.expires).Seconds()), wait.Eventually(ctx, shortTimeout, wait.Normally, func(ctx context.Context) error {
		got, err := l.scannerCounts(ctx)
		if err == nil && got != l.counts {
			err = fmt.Errorf("expected the Scanner of %s to count %+v as before the exception, it counts %+v", l.Production(), l.counts, got)
		}
		if err != nil {
			return err
		}
		return l.requireException(ctx, v1alpha1.ReasonExpired, 0)
	})
}
