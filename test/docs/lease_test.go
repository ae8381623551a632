package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/scanner-operator/scanner-operator/pkg/election"
)

// takeover returns when another replica has a Lease at the latest, after its holder is lost: between two attempts, client-go waits for the retry period
// and a random part of JitterFactor times as much.
func takeover(times election.Times) time.Duration {
	return times.LeaseDuration + time.Duration((1+leaderelection.JitterFactor)*float64(times.RetryPeriod))
}

// The pages say how long a lost leader takes by the times of its Lease, and the alert fires later than that.
func TestLeaseTimes(t *testing.T) {
	replicas, one := election.ForReplicas, election.ForOneHolder
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	const rounded = 10 * time.Second
	longest := seconds((takeover(replicas) + rounded - 1).Truncate(rounded))
	for page, texts := range map[string][]string{
		"docs/operate/high-availability.md": {
			fmt.Sprintf("another one leads within %d seconds", longest), fmt.Sprintf("another one sends within %d seconds", longest),
			fmt.Sprintf("It is 0 for at most %d seconds", longest),
			fmt.Sprintf("The %d seconds are the %d of the Lease, and twice the time between two attempts", longest, seconds(replicas.LeaseDuration)),
			fmt.Sprintf("(%d, %d and %d seconds)", seconds(replicas.LeaseDuration), seconds(replicas.RenewDeadline), seconds(replicas.RetryPeriod)),
		},
		"docs/operate/store.md": {
			fmt.Sprintf("cannot renew its lease for %d seconds (%d with a store on a server)", seconds(one.RenewDeadline), seconds(replicas.RenewDeadline)),
		},
		"docs/operate/runbooks.md": {fmt.Sprintf("A takeover takes at most %d s.", longest)},
	} {
		text := strings.Join(strings.Fields(read(t, page)), " ")
		for _, want := range texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", page, want)
			}
		}
	}
	alert := regexp.MustCompile(`(?s)alert: ScannerOperatorWithoutLeader.*?for: (\w+)`).FindStringSubmatch(read(t, "charts/scanner-operator/files/prometheus/prometheusrule.yaml"))
	if alert == nil {
		t.Fatal("there is no alert ScannerOperatorWithoutLeader")
	}
	if after, err := time.ParseDuration(alert[1]); err != nil || after < takeover(one) {
		t.Errorf("the alert fires after %s (%v), before a takeover is late (%s)", alert[1], err, takeover(one))
	}
}
