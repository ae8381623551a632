package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at returns a time, given in seconds after a fixed start.
func at(seconds float64) time.Time {
	return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// answered returns a message of channel a that was accepted at the given time and answered half a second later.
func answered(accepted float64, names ...string) acceptedMessage {
	return acceptedMessage{webhook: "a", names: names, accepted: at(accepted), answered: at(accepted + 0.5)}
}

func withheld(accepted float64, names ...string) acceptedMessage {
	return acceptedMessage{webhook: "a", names: names, accepted: at(accepted)}
}

func dies(who string, when float64) death { return death{who: who, from: at(when), to: at(when + 0.1)} }

// Lost findings are detected, and repeated messages are unexplained unless the repetition was unavoidable.
func TestJudge(t *testing.T) {
	all := map[finding]time.Time{{"a", "x"}: at(0), {"a", "y"}: at(0)}
	for name, tt := range map[string]struct {
		reported []acceptedMessage
		deaths   []death
		want     map[string]int
	}{
		"each once":                             {[]acceptedMessage{answered(1, "x"), answered(2, "y")}, nil, map[string]int{"digests": 2}},
		"one never":                             {[]acceptedMessage{answered(1, "x")}, nil, map[string]int{"digests": 1, "lost": 1}},
		"to another receiver":                   {[]acceptedMessage{answered(1, "x"), {webhook: "b", names: []string{"y"}, accepted: at(2), answered: at(2)}}, nil, map[string]int{"digests": 2, "lost": 1, "unfounded": 1}},
		"what is not true":                      {[]acceptedMessage{answered(1, "x", "y"), answered(2, "z")}, nil, map[string]int{"digests": 2, "unfounded": 1}},
		"before it is true":                     {[]acceptedMessage{answered(-1, "x"), answered(2, "y")}, nil, map[string]int{"digests": 2, "unfounded": 1}},
		"twice for no reason":                   {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1}},
		"again with something new":              {[]acceptedMessage{answered(1, "x"), answered(9, "x", "y")}, nil, map[string]int{"digests": 2, "doubled": 1, "unexplained": 1}},
		"no answer":                             {[]acceptedMessage{withheld(1, "x", "y"), answered(9, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 1, "allowed": 1}},
		"no answer once, and three times":       {[]acceptedMessage{withheld(1, "x", "y"), answered(9, "x", "y"), answered(19, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 2, "unexplained": 1, "allowed": 1}},
		"notifier killed with it":               {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(notifier, 1.2)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 1}},
		"notifier killed long after":            {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(notifier, 5)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed before it was accepted": {[]acceptedMessage{answered(10, "x", "y"), answered(19, "x", "y")}, []death{dies(manager, 9), dies(notifier, 15)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 2}},
		"manager killed long before":            {[]acceptedMessage{answered(10, "x", "y"), answered(19, "x", "y")}, []death{dies(manager, 3), dies(notifier, 15)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 2}},
		"notifier killed before":                {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(notifier, 0.5)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed, notifier knows it":     {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(manager, 1.2)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed, then the notifier":     {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(manager, 1.2), dies(notifier, 6)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 2}},
		"notifier, after it came again":         {[]acceptedMessage{answered(1, "x", "y"), answered(9, "x", "y")}, []death{dies(manager, 1.2), dies(notifier, 9.2)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(all, tt.reported, tt.deaths)
			got := map[string]int{}
			for what, n := range map[string]int{
				"digests": v.digests, "lost": len(v.lost), "doubled": len(v.repeated), "unexplained": len(v.unexplained), "allowed": v.allowed(),
				"unfounded": len(v.unfounded),
			} {
				if n > 0 {
					got[what] = n
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			bad := tt.want["lost"]+tt.want["unexplained"]+tt.want["unfounded"] > 0 || tt.want["doubled"] > tt.want["allowed"]
			if err := v.problems(options{}); (err != nil) != bad {
				t.Errorf("the bounds: %v, want them broken: %t", err, bad)
			}
		})
	}
}
