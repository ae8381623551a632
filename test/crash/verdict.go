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
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// image is an image that a team runs, with a repository of its own. It goes through stages.
type image struct {
	number uint32
	team   int
	stage  int
	// since holds the time when each stage began.
	since []time.Time
}

// stageUnsuppressed follows the stages of the fake backend: the exception for the third finding is deleted.
const stageUnsuppressed = fake.StageFixed + 1

// name contains the word that makes the fake backend find something.
func (i image) name() string { return fmt.Sprintf("evolving-%04d", i.number) }

func (i image) repository() string { return "registry.example.com/" + i.name() }

func (i image) digest() string { return fake.EvolvingDigest(i.number, min(i.stage, fake.StageFixed)) }

// finding is a change of a vulnerability in an image that one receiver must receive, with the text of a message's line.
type finding struct{ webhook, name string }

// changesOf lists the changes of each stage: the change, the number of the finding, and its package.
var changesOf = [...][]struct {
	change v1alpha1.Change
	which  int
	pkg    string
}{
	fake.StageNew:          {{v1alpha1.ChangeNew, 1, "openssl"}, {v1alpha1.ChangeNew, 2, "zlib"}},
	fake.StageFixAvailable: {{v1alpha1.ChangeFixAvailable, 2, "zlib"}},
	fake.StageExploited:    {{v1alpha1.ChangeEscalated, 2, "zlib"}},
	fake.StageFixed:        {{v1alpha1.ChangeFixed, 1, "openssl"}},
	// An exception suppresses the finding until this stage.
	stageUnsuppressed: {{v1alpha1.ChangeNew, 3, "curl"}},
}

// findings returns all findings of the image that must be announced, each with its earliest time.
func (i image) findings() map[finding]time.Time {
	all := map[finding]time.Time{}
	for stage := range i.stage + 1 {
		for _, c := range changesOf[stage] {
			for r := range receivers {
				line := scenario.Line{Repository: i.repository(), ID: fake.EvolvingID(i.number, c.which), Package: c.pkg}
				all[finding{webhook(i.team, r), nameOf(c.change, line)}] = i.since[stage]
			}
		}
	}
	return all
}

// nameOf returns the name of a finding in this test: the change and the line.
func nameOf(change v1alpha1.Change, line scenario.Line) string {
	return string(change) + " " + line.String()
}

const (
	// maxInFlight bounds the time that a message is with the notifier before Slack accepts it. A message waits in the notifier's queue for
	// up to 5 s.
	maxInFlight = 6 * time.Second
	// maxRecording bounds the time after Slack's answer until the manager has stored it: the notifier reads the answer and reports it to the
	// manager.
	maxRecording = 2 * time.Second
)

// verdict is the result of a run.
type verdict struct {
	deaths []death
	// findings is the number of findings that had to be announced, by change. digests is the number of messages that announced at least
	// one finding for the first time. accepted is the number of messages that Slack accepted.
	findings, digests, accepted int
	// changes counts the findings that were announced at least once, by change.
	changes map[v1alpha1.Change]int
	// unanswered is the number of accepted messages without an answer.
	unanswered int
	// lost are findings that were never announced. doubled are messages with a finding that was announced before. unexplained are those
	// of them that were avoidable. wrong are messages that Slack would reject.
	lost                           []finding
	repeated, unexplained, invalid []acceptedMessage
	// writes is the number of transactions that were recorded, and deposedWrites that of managers that did not lead any more.
	writes, deposedWrites int
	// unfounded are findings that were announced although they were not true at the time, such as a suppressed finding.
	unfounded []finding
}

// judge compares the messages, in the order of their acceptance, with the findings that had to be announced.
func judge(all map[finding]time.Time, reported []acceptedMessage, deaths []death) verdict {
	v := verdict{deaths: deaths, findings: len(all), accepted: len(reported), digests: digests(reported), lost: missing(all, reported), changes: map[v1alpha1.Change]int{}}
	announced := map[finding]acceptedMessage{}
	for _, now := range reported {
		if now.answered.IsZero() {
			v.unanswered++
		}
		if now.broken != nil || len(now.violations) > 0 {
			v.invalid = append(v.invalid, now)
		}
		before, again := firstOf(announced, now)
		if again {
			v.repeated = append(v.repeated, now)
			if !explained(before, now, deaths) {
				v.unexplained = append(v.unexplained, now)
			}
		}
		for _, name := range now.names {
			f := finding{now.webhook, name}
			if since, isTrue := all[f]; !isTrue || now.accepted.Before(since) {
				v.unfounded = append(v.unfounded, f)
			}
			if _, again := announced[f]; !again {
				change, _, _ := strings.Cut(name, " ")
				v.changes[v1alpha1.Change(change)]++
			}
			announced[f] = now
		}
	}
	return v
}

// firstOf returns the latest earlier message that announced one of the message's findings.
func firstOf(known map[finding]acceptedMessage, now acceptedMessage) (before acceptedMessage, found bool) {
	for _, name := range now.names {
		if earlier, reported := known[finding{now.webhook, name}]; reported {
			before, found = earlier, true
		}
	}
	return before, found
}

// digests returns the number of messages that announced a finding for the first time.
func digests(reported []acceptedMessage) (n int) {
	known := map[finding]bool{}
	for _, now := range reported {
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

// missing returns the findings that no message contains.
func missing(all map[finding]time.Time, reported []acceptedMessage) (lost []finding) {
	known := map[finding]bool{}
	for _, now := range reported {
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

// explained reports whether the repetition was unavoidable: the first message had no answer; or a process died during its delivery, and
// the notifier, which remembers accepted messages, died before the retry.
func explained(before, again acceptedMessage, deaths []death) bool {
	if before.answered.IsZero() {
		return true
	}
	diedInDelivery, lostMemory := false, false
	for _, d := range deaths {
		diedInDelivery = diedInDelivery || d.within(before.accepted.Add(-maxInFlight), before.answered.Add(maxRecording))
		lostMemory = lostMemory || d.who == notifier && d.within(before.accepted, again.accepted)
	}
	return diedInDelivery && lostMemory
}

// within reports whether the death may have happened between two times.
func (d death) within(from, to time.Time) bool { return !d.to.Before(from) && !d.from.After(to) }

// deathsOf returns how often a program was killed, and how often it ended otherwise.
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

// allowed returns the maximum number of repeated messages: one for each death and each withheld answer.
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
		{"messages that Slack accepted", v.accepted},
		{"answered 429", c.limited},
		{"answered 500", c.failed},
		{"accepted, and never answered", c.acceptedSilently},
		{"not accepted, and never answered", c.ignored},
		{"findings to be announced", v.findings},
		{"  new", v.changes[v1alpha1.ChangeNew]},
		{"  with a fix", v.changes[v1alpha1.ChangeFixAvailable]},
		{"  more urgent", v.changes[v1alpha1.ChangeEscalated]},
		{"  fixed", v.changes[v1alpha1.ChangeFixed]},
		{"lost", len(v.lost)},
		{"announced and not true", len(v.unfounded)},
		{"doubled messages", len(v.repeated)},
		{"  allowed: one for each death or withheld answer", v.allowed()},
		{"  that nothing explains", len(v.unexplained)},
		{"recorded transactions", v.writes},
		{"  of a manager that another one had replaced", v.deposedWrites},
	} {
		fmt.Fprintf(out, "  %-48s %4d\n", row.what, row.n)
	}
}

// problems returns an error for everything that must not happen.
func (v verdict) problems(o options) error {
	var errs []error
	if len(v.lost) > 0 {
		errs = append(errs, fmt.Errorf("%d findings are lost, such as %s for %s", len(v.lost), v.lost[0].name, v.lost[0].webhook))
	}
	if v.deposedWrites > 0 || o.suspend && v.writes == 0 {
		errs = append(errs, fmt.Errorf("%d of %d transactions are of managers that another one had replaced", v.deposedWrites, v.writes))
	}
	if len(v.unfounded) > 0 {
		errs = append(errs, fmt.Errorf("%d were announced and not true then, such as %s for %s", len(v.unfounded), v.unfounded[0].name, v.unfounded[0].webhook))
	}
	if len(v.repeated) > v.allowed() {
		errs = append(errs, fmt.Errorf("%d messages are doubled, more than the %d deaths and withheld answers", len(v.repeated), v.allowed()))
	}
	for _, again := range v.unexplained {
		errs = append(errs, fmt.Errorf("a message came twice though it was answered and the notifier knew it: %s at %s", again.webhook, again.accepted.Format(stamp)))
	}
	for _, bad := range v.invalid {
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
