package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// image is one that a team runs, in a repository of its own.
type image struct{ number, team int }

// name has in it that the fake backend finds something.
func (i image) name() string { return fmt.Sprintf("vulnerable-%04d", i.number) }

func (i image) repository() string { return "registry.example.com/" + i.name() }

// finding is what one receiver is to be told, in the words of a message.
type finding struct{ webhook, name string }

// invented is what the fake backend finds in a vulnerable image.
var invented = []string{"CVE-2024-0001 in openssl", "CVE-2024-0002 in zlib"}

// findings are all that are to be told of the image.
func (i image) findings() []finding {
	var all []finding
	for r := range receivers {
		for _, name := range invented {
			all = append(all, finding{webhook(i.team, r), name + " of " + i.repository()})
		}
	}
	return all
}

const (
	// carried is how long at most a message is with the notifier before Slack takes it: it waits for its turn for up to 5 s.
	carried = 6 * time.Second
	// recorded is how long after Slack's answer, at most, the notifier has heard it, told the manager, and the manager has it
	// in its store.
	recorded = 2 * time.Second
)

// verdict is what came of it.
type verdict struct {
	deaths []death
	// findings that were to be told, digests that told at least one for the first time, messages that Slack took.
	findings, digests, taken int
	// unanswered are messages that were taken and got no answer, whoever waited for it.
	unanswered int
	// lost are findings that were never told, doubled messages with one that was told before, of which nobody could
	// have known better but for the unexplained ones. wrong are messages that Slack would not take.
	lost                        []finding
	doubled, unexplained, wrong []telling
}

// judge compares what was told with what was to be told. The messages are in the order in which they were taken.
func judge(all []finding, told []telling, deaths []death) verdict {
	v := verdict{deaths: deaths, findings: len(all), taken: len(told), digests: digests(told), lost: missing(all, told)}
	known := map[finding]telling{}
	for _, now := range told {
		if now.answered.IsZero() {
			v.unanswered++
		}
		if now.broken != nil || len(now.violations) > 0 {
			v.wrong = append(v.wrong, now)
		}
		before, again := firstOf(known, now)
		if again {
			v.doubled = append(v.doubled, now)
			if !explained(before, now, deaths) {
				v.unexplained = append(v.unexplained, now)
			}
		}
		for _, name := range now.names {
			known[finding{now.webhook, name}] = now
		}
	}
	return v
}

// firstOf finds the latest message that told something of what this one tells.
func firstOf(known map[finding]telling, now telling) (before telling, found bool) {
	for _, name := range now.names {
		if earlier, told := known[finding{now.webhook, name}]; told {
			before, found = earlier, true
		}
	}
	return before, found
}

// digests counts the messages that told something for the first time.
func digests(told []telling) (n int) {
	known := map[finding]bool{}
	for _, now := range told {
		first := false
		for _, name := range now.names {
			f := finding{now.webhook, name}
			first = first || !known[f]
			known[f] = true
		}
		if first {
			n++
		}
	}
	return n
}

// missing are the findings that no message names.
func missing(all []finding, told []telling) []finding {
	known := map[finding]bool{}
	for _, now := range told {
		for _, name := range now.names {
			known[finding{now.webhook, name}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return known[f] })
}

// explained says whether nobody could know that a message was taken: there was no answer; or somebody died while it was on
// its way, and the notifier, which remembers, before it came again.
func explained(before, again telling, deaths []death) bool {
	if before.answered.IsZero() {
		return true
	}
	onItsWay, forgotten := false, false
	for _, d := range deaths {
		onItsWay = onItsWay || d.within(before.taken.Add(-carried), before.answered.Add(recorded))
		forgotten = forgotten || d.who == notifier && d.within(before.taken, again.taken)
	}
	return onItsWay && forgotten
}

// within says whether it may have happened between two moments.
func (d death) within(from, to time.Time) bool { return !d.to.Before(from) && !d.from.After(to) }

// deathsOf counts how often one was killed, and how often it ended otherwise.
func (v verdict) deathsOf(who string) (killed, otherwise int) {
	for _, d := range v.deaths {
		switch {
		case d.who != who:
		case d.byItself:
			otherwise++
		default:
			killed++
		}
	}
	return killed, otherwise
}

// allowed is how many messages may come twice: one for each death and each answer that was withheld.
func (v verdict) allowed() int { return len(v.deaths) + v.unanswered }

func (v verdict) print(out io.Writer, c counts) {
	for _, who := range []string{manager, notifier} {
		killed, otherwise := v.deathsOf(who)
		fmt.Fprintf(out, "  %-48s %4d", "kill -9 of the "+who, killed)
		if otherwise > 0 {
			fmt.Fprintf(out, "  (and it ended %d times by itself)", otherwise)
		}
		fmt.Fprintln(out)
	}
	for _, row := range []struct {
		what string
		n    int
	}{
		{"digests", v.digests},
		{"messages that Slack took", v.taken},
		{"answered 429", c.limited},
		{"answered 500", c.failed},
		{"taken, and never answered", c.swallowed},
		{"not taken, and never answered", c.deaf},
		{"findings to be told", v.findings},
		{"lost", len(v.lost)},
		{"doubled messages", len(v.doubled)},
		{"  allowed: one for each death or withheld answer", v.allowed()},
		{"  that nothing explains", len(v.unexplained)},
	} {
		fmt.Fprintf(out, "  %-48s %4d\n", row.what, row.n)
	}
}

// broken is what is not as it must be.
func (v verdict) broken(o options) error {
	var errs []error
	if len(v.lost) > 0 {
		errs = append(errs, fmt.Errorf("%d findings are lost, such as %s for %s", len(v.lost), v.lost[0].name, v.lost[0].webhook))
	}
	if len(v.doubled) > v.allowed() {
		errs = append(errs, fmt.Errorf("%d messages are doubled, more than the %d deaths and withheld answers", len(v.doubled), v.allowed()))
	}
	for _, again := range v.unexplained {
		errs = append(errs, fmt.Errorf("a message came twice though it was answered and the notifier knew it: %s at %s", again.webhook, again.taken.Format(stamp)))
	}
	for _, bad := range v.wrong {
		why := bad.broken
		for _, violation := range bad.violations {
			why = cmp.Or(why, errors.New(violation.Detail))
		}
		errs = append(errs, fmt.Errorf("a message that Slack would not take, for %s: %w", bad.webhook, why))
	}
	if killed := len(v.deaths) - byItself(v.deaths); killed < o.kills || v.digests < o.digests {
		errs = append(errs, fmt.Errorf("%d kills and %d digests are too few to prove anything", killed, v.digests))
	}
	return errors.Join(errs...)
}
