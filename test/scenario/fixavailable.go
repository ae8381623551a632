package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// fixAvailableSteps returns the steps of the third scenario: Debian publishes a fix of the vulnerability.
func (l *lifecycle) fixAvailableSteps() []Step {
	return []Step{
		{"Third scenario: the advisory gets a fixed version", func(ctx context.Context) (string, error) {
			return l.publishAdvisories(ctx, "advisories-next", "advisories-fix")
		}},
		{"A message says that there is a fix now", l.checkFixAvailable},
	}
}

func (l *lifecycle) checkFixAvailable(ctx context.Context) (string, error) {
	began := time.Now()
	message, err := l.changeMessage(ctx, l.newDataTimeout(), v1alpha1.ChangeFixAvailable)
	if err != nil {
		return "", err
	}
	for _, line := range message.Lines {
		if line.FixedIn != images.FixedOpenSSL {
			return "", fmt.Errorf("expected the message to name version %s, it is:\n%s", images.FixedOpenSSL, message.Text)
		}
	}
	return fmt.Sprintf("%q, %.0f s after it was published", message.Headline, time.Since(began).Seconds()), nil
}
