package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/test/story"
)

// image is one that a team runs, in a repository of its own. It goes through stages.
type image struct {
	number uint16
	team   int
	stage  int
	// since is when each stage began.
	since []time.Time
}

// stageUncovered comes after those of the fake backend: the exception for the third finding is deleted.
const stageUncovered = fake.StageFixed + 1

// name has in it that the fake backend finds something.
func (i image) name() string { return fmt.Sprintf("evolving-%04d", i.number) }

func (i image) repository() string { return "registry.example.com/" + i.name() }

func (i image) digest() string { return fake.EvolvingDigest(i.number, min(i.stage, fake.StageFixed)) }

// finding is what one receiver is to be told, in the words of a message: a change of a vulnerability in an image.
type finding struct{ webhook, name string }

// changesOf are those of each stage: what changes, which of the image's findings, and in which package.
var changesOf = [...][]struct {
	change v1alpha1.Change
	which  int
	pkg    string
}{
	fake.StageNew:          {{v1alpha1.ChangeNew, 1, "openssl"}, {v1alpha1.ChangeNew, 2, "zlib"}},
	fake.StageFixAvailable: {{v1alpha1.ChangeFixAvailable, 2, "zlib"}},
	fake.StageExploited:    {{v1alpha1.ChangeEscalated, 2, "zlib"}},
	fake.StageFixed:        {{v1alpha1.ChangeFixed, 1, "openssl"}},
	// An exception covers it until then.
	stageUncovered: {{v1alpha1.ChangeNew, 3, "curl"}},
}

// findings are all that are to be told of the image, each with the earliest time.
func (i image) findings() map[finding]time.Time {
	all := map[finding]time.Time{}
	for stage := range i.stage + 1 {
		for _, c := range changesOf[stage] {
			for r := range receivers {
				line := story.Line{Repository: i.repository(), ID: fake.EvolvingID(i.number, c.which), Package: c.pkg}
				all[finding{webhook(i.team, r), nameOf(c.change, line)}] = i.since[stage]
			}
		}
	}
	return all
}

// nameOf names what a line tells.
func nameOf(change v1alpha1.Change, line story.Line) string {
	return string(change) + " " + line.String()
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
	// findings that were to be told, by each change, digests that told at least one for the first time, messages that Slack took.
	findings, digests, taken int
	// changes counts the findings that were told at least once by their change.
	changes map[v1alpha1.Change]int
	// unanswered are messages that were taken and got no answer, whoever waited for it.
	unanswered int
	// lost are findings that were never told, doubled messages with one that was told before, of which nobody could
	// have known better but for the unexplained ones. wrong are messages that Slack would not take.
	lost                        []finding
	doubled, unexplained, wrong []telling
	// unfounded are those that were told and were not true then, such as what an exception covered.
	unfounded []finding
}

// judge compares what was told with what was to be told. The messages are in the order in which they were taken.
func judge(all map[finding]time.Time, told []telling, deaths []death) verdict {
	v := verdict{deaths: deaths, findings: len(all), taken: len(told), digests: digests(told), lost: missing(all, told), changes: map[v1alpha1.Change]int{}}
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
			f := finding{now.webhook, name}
			if since, isTrue := all[f]; !isTrue || now.taken.Before(since) {
				v.unfounded = append(v.unfounded, f)
			}
			if _, again := known[f]; !again {
				change, _, _ := strings.Cut(name, " ")
				v.changes[v1alpha1.Change(change)]++
			}
			known[f] = now
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
func missing(all map[finding]time.Time, told []telling) (lost []finding) {
	known := map[finding]bool{}
	for _, now := range told {
		for _, name := range now.names {
			known[finding{now.webhook, name}] = true
		}
	}
	for f := range all {
		if !known[f] {
			lost = append(lost, f)
		}
	}
	slices.SortFunc(lost, func(a, b finding) int { return cmp.Or(cmp.Compare(a.webhook, b.webhook), cmp.Compare(a.name, b.name)) })
	return lost
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
		{"  new", v.changes[v1alpha1.ChangeNew]},
		{"  with a fix", v.changes[v1alpha1.ChangeFixAvailable]},
		{"  more urgent", v.changes[v1alpha1.ChangeEscalated]},
		{"  fixed", v.changes[v1alpha1.ChangeFixed]},
		{"lost", len(v.lost)},
		{"told and not true", len(v.unfounded)},
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
	if len(v.unfounded) > 0 {
		errs = append(errs, fmt.Errorf("%d were told and not true then, such as %s for %s", len(v.unfounded), v.unfounded[0].name, v.unfounded[0].webhook))
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
