package ledger

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
func answered(accepted float64, names ...string) Message {
	return Message{Webhook: "a", Names: names, Accepted: at(accepted), Answered: at(accepted + 0.5)}
}

func withheld(accepted float64, names ...string) Message {
	return Message{Webhook: "a", Names: names, Accepted: at(accepted)}
}

func dies(program string, when float64) Fault {
	return Fault{What: program, From: at(when), To: at(when + 0.1)}
}

// Lost findings are detected, and repeated messages are unexplained unless the repetition was unavoidable.
func TestJudge(t *testing.T) {
	all := map[Finding]time.Time{{"a", "x"}: at(0), {"a", "y"}: at(0)}
	for name, tt := range map[string]struct {
		reported []Message
		faults   []Fault
		want     map[string]int
	}{
		"each once":                             {[]Message{answered(1, "x"), answered(2, "y")}, nil, map[string]int{"digests": 2}},
		"one never":                             {[]Message{answered(1, "x")}, nil, map[string]int{"digests": 1, "lost": 1}},
		"to another receiver":                   {[]Message{answered(1, "x"), {Webhook: "b", Names: []string{"y"}, Accepted: at(2), Answered: at(2)}}, nil, map[string]int{"digests": 2, "lost": 1, "unfounded": 1}},
		"what is not true":                      {[]Message{answered(1, "x", "y"), answered(2, "z")}, nil, map[string]int{"digests": 2, "unfounded": 1}},
		"before it is true":                     {[]Message{answered(-1, "x"), answered(2, "y")}, nil, map[string]int{"digests": 2, "unfounded": 1}},
		"twice for no reason":                   {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1}},
		"again with something new":              {[]Message{answered(1, "x"), answered(9, "x", "y")}, nil, map[string]int{"digests": 2, "doubled": 1, "unexplained": 1}},
		"no answer":                             {[]Message{withheld(1, "x", "y"), answered(9, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 1, "allowed": 1}},
		"no answer once, and three times":       {[]Message{withheld(1, "x", "y"), answered(9, "x", "y"), answered(19, "x", "y")}, nil, map[string]int{"digests": 1, "doubled": 2, "unexplained": 1, "allowed": 1}},
		"notifier killed with it":               {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Notifier, 1.2)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 1}},
		"notifier killed long after":            {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Notifier, 5)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed before it was accepted": {[]Message{answered(10, "x", "y"), answered(19, "x", "y")}, []Fault{dies(Manager, 9), dies(Notifier, 15)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 2}},
		"manager killed long before":            {[]Message{answered(10, "x", "y"), answered(19, "x", "y")}, []Fault{dies(Manager, 3), dies(Notifier, 15)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 2}},
		"notifier killed before":                {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Notifier, 0.5)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed, notifier knows it":     {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Manager, 1.2)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 1}},
		"manager killed, then the notifier":     {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Manager, 1.2), dies(Notifier, 6)}, map[string]int{"digests": 1, "doubled": 1, "allowed": 2}},
		"Notifier, after it came again":         {[]Message{answered(1, "x", "y"), answered(9, "x", "y")}, []Fault{dies(Manager, 1.2), dies(Notifier, 9.2)}, map[string]int{"digests": 1, "doubled": 1, "unexplained": 1, "allowed": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(all, tt.reported, tt.faults)
			got := map[string]int{}
			for what, n := range map[string]int{
				"digests": v.Digests, "lost": len(v.Lost), "doubled": len(v.Repeated), "unexplained": len(v.Unexplained), "allowed": v.Allowed(),
				"unfounded": len(v.Unfounded),
			} {
				if n > 0 {
					got[what] = n
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			bad := tt.want["lost"]+tt.want["unexplained"]+tt.want["unfounded"] > 0 || tt.want["doubled"] > tt.want["allowed"]
			if err := v.Problems(); (err != nil) != bad {
				t.Errorf("the bounds: %v, want them broken: %t", err, bad)
			}
		})
	}
}
