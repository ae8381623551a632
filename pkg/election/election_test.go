package election

import (
	"flag"
	"strings"
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		defaults Times
		want     Times
		err      string
	}{
		"replicas":             {nil, ForReplicas, Times{30 * time.Second, 20 * time.Second, 4 * time.Second}, ""},
		"one holder":           {nil, ForOneHolder, Times{90 * time.Second, 75 * time.Second, 4 * time.Second}, ""},
		"one of them is given": {[]string{"--leader-elect-renew-deadline=10s"}, ForReplicas, Times{30 * time.Second, 10 * time.Second, 4 * time.Second}, ""},
		"in parts":             {[]string{"--leader-elect-lease-duration=30500ms"}, ForReplicas, Times{}, "--leader-elect-lease-duration: must be whole seconds"},
		"a long deadline":      {[]string{"--leader-elect-lease-duration=15s"}, ForReplicas, Times{}, "--leader-elect-renew-deadline: 20s must be less"},
		"a long period":        {[]string{"--leader-elect-retry-period=17s"}, ForReplicas, Times{}, "--leader-elect-retry-period: 17s must be more than 0 and less than 5/6"},
		"a negative period":    {[]string{"--leader-elect-retry-period=-1s"}, ForReplicas, Times{}, "--leader-elect-retry-period: -1s must be more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var given Times
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			given.AddFlags(flags, "30s")
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			times := given.Or(test.defaults)
			switch err := times.Validate(); {
			case test.err == "" && (err != nil || times != test.want):
				t.Errorf("got %+v, %v, want %+v", times, err, test.want)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want %q", err, test.err)
			}
		})
	}
}
