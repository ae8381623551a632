// Package ledger judges the messages that Slack accepted while parts of the operator failed: which findings are lost, which messages came
// twice, and which of these repetitions was avoidable.
//
// A message may be repeated only where this is unavoidable: Slack's answer did not arrive, or the delivery was disturbed and the notifier, which
// remembers accepted messages, ended before the retry. There are never more repeated messages than faults and missing answers.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// Finding is a change of a vulnerability in an image that one receiver must receive.
type Finding struct {
	// Webhook identifies the receiver. Name is the result of NameOf.
	Webhook, Name string
}

// NameOf returns the name of a finding: the change and the line.
func NameOf(change v1alpha1.Change, line scenario.Line) string {
	return string(change) + " " + line.String()
}

// Message is a message that Slack accepted.
type Message struct {
	// Webhook identifies the receiver.
	Webhook string
	// Names are the findings in the message.
	Names []string
	// Text is the message as a person sees it.
	Text string
	// Accepted is when Slack accepted the message. Answered is when Slack answered; zero if the sender got no answer.
	Accepted, Answered time.Time
	// Violations are those of Slack's limits. Broken is the error of parsing the message.
	Violations []standin.Violation
	Broken     error
}

// NewMessage reads a message. Accepted and Answered are left to the caller.
func NewMessage(webhook string, m standin.Message) Message {
	message := Message{Webhook: webhook, Text: m.Text, Violations: m.Violations}
	read, err := scenario.ReadMessage(m)
	message.Broken = err
	for _, line := range read.Lines {
		message.Names = append(message.Names, NameOf(line.Change, line))
	}
	return message
}

// Programs whose ends are counted.
const (
	Manager = "manager"
	// Notifier remembers accepted messages until it ends.
	Notifier = "notifier"
)

// Fault is the end of a process, or another disturbance, that may interrupt a delivery.
type Fault struct {
	// What is Manager, Notifier, or the name of another fault.
	What string
	// From and To bound the time of the fault. The end of a process is a moment between them.
	From, To time.Time
	// ByItself is true for a process that nobody killed.
	ByItself bool
}

// within reports whether the fault may have happened between two times.
func (f Fault) within(from, to time.Time) bool { return !f.To.Before(from) && !f.From.After(to) }

// ByThemselves returns the number of processes that ended and that nobody killed.
func ByThemselves(faults []Fault) (n int) {
	for _, f := range faults {
		if f.ByItself {
			n++
		}
	}
	return n
}

const (
	// maxInFlight bounds the time that a message is with the notifier before Slack accepts it. A message waits in the notifier's queue for
	// up to 5 s.
	maxInFlight = 6 * time.Second
	// maxRecording bounds the time after Slack's answer until the manager has stored it: the notifier reads the answer and reports it to the
	// manager.
	maxRecording = 2 * time.Second
)

// Verdict is the result of a run.
type Verdict struct {
	Faults []Fault
	// Findings is the number of findings that had to be announced. Digests is the number of messages that announced at least one finding for
	// the first time. Accepted is the number of messages that Slack accepted.
	Findings, Digests, Accepted int
	// Changes counts the findings that were announced at least once, by change.
	Changes map[v1alpha1.Change]int
	// Unanswered is the number of accepted messages without an answer.
	Unanswered int
	// Lost are findings that were never announced. Repeated are messages with a finding that was announced before. Unexplained are those of
	// them that were avoidable. Invalid are messages that Slack would reject.
	Lost                           []Finding
	Repeated, Unexplained, Invalid []Message
	// Unfounded are findings that were announced although they were not true at the time, such as a suppressed finding.
	Unfounded []Finding
}

// Judge compares the messages, in the order of their acceptance, with the findings that had to be announced. all has the time since when each
// finding is true.
func Judge(all map[Finding]time.Time, accepted []Message, faults []Fault) Verdict {
	v := Verdict{
		Faults: faults, Findings: len(all), Accepted: len(accepted), Digests: Digests(accepted), Lost: Missing(all, accepted),
		Changes: map[v1alpha1.Change]int{},
	}
	announced := map[Finding]Message{}
	for _, now := range accepted {
		if now.Answered.IsZero() {
			v.Unanswered++
		}
		if now.Broken != nil || len(now.Violations) > 0 {
			v.Invalid = append(v.Invalid, now)
		}
		before, again := firstOf(announced, now)
		if again {
			v.Repeated = append(v.Repeated, now)
			if !explained(before, now, faults) {
				v.Unexplained = append(v.Unexplained, now)
			}
		}
		for _, name := range now.Names {
			f := Finding{now.Webhook, name}
			if since, isTrue := all[f]; !isTrue || now.Accepted.Before(since) {
				v.Unfounded = append(v.Unfounded, f)
			}
			if _, again := announced[f]; !again {
				change, _, _ := strings.Cut(name, " ")
				v.Changes[v1alpha1.Change(change)]++
			}
			announced[f] = now
		}
	}
	return v
}

// firstOf returns the latest earlier message that announced one of the message's findings.
func firstOf(announced map[Finding]Message, now Message) (before Message, found bool) {
	for _, name := range now.Names {
		if earlier, known := announced[Finding{now.Webhook, name}]; known {
			before, found = earlier, true
		}
	}
	return before, found
}

// Digests returns the number of messages that announced a finding for the first time.
func Digests(accepted []Message) (n int) {
	known := map[Finding]bool{}
	for _, now := range accepted {
		first := false
		for _, name := range now.Names {
			f := Finding{now.Webhook, name}
			first = first || !known[f]
			known[f] = true
		}
		if first {
			n++
		}
	}
	return n
}

// Missing returns the findings that no message contains, sorted.
func Missing(all map[Finding]time.Time, accepted []Message) (lost []Finding) {
	known := map[Finding]bool{}
	for _, now := range accepted {
		for _, name := range now.Names {
			known[Finding{now.Webhook, name}] = true
		}
	}
	for f := range all {
		if !known[f] {
			lost = append(lost, f)
		}
	}
	slices.SortFunc(lost, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Webhook, b.Webhook), cmp.Compare(a.Name, b.Name)) })
	return lost
}

// explained reports whether the repetition was unavoidable: the first message had no answer; or its delivery was disturbed, and the notifier,
// which remembers accepted messages, ended before the retry.
func explained(before, again Message, faults []Fault) bool {
	if before.Answered.IsZero() {
		return true
	}
	disturbed, lostMemory := false, false
	for _, f := range faults {
		disturbed = disturbed || f.within(before.Accepted.Add(-maxInFlight), before.Answered.Add(maxRecording))
		lostMemory = lostMemory || f.What == Notifier && f.within(before.Accepted, again.Accepted)
	}
	return disturbed && lostMemory
}

// EndsOf returns how often a program was killed, and how often it ended otherwise.
func (v Verdict) EndsOf(program string) (killed, otherwise int) {
	for _, f := range v.Faults {
		switch {
		case f.What != program:
		case f.ByItself:
			otherwise++
		default:
			killed++
		}
	}
	return killed, otherwise
}

// Allowed returns the maximum number of repeated messages: one for each fault and each missing answer.
func (v Verdict) Allowed() int { return len(v.Faults) + v.Unanswered }

// Row is one row of a table of results.
type Row struct {
	What string
	N    int
}

// Print prints rows as a table.
func Print(out io.Writer, rows ...Row) {
	for _, row := range rows {
		fmt.Fprintf(out, "  %-48s %4d\n", row.What, row.N)
	}
}

// PrintEnds prints how often a program was killed, and how often it ended by itself.
func (v Verdict) PrintEnds(out io.Writer, program string) {
	killed, otherwise := v.EndsOf(program)
	fmt.Fprintf(out, "  %-48s %4d", "kill -9 of the "+program, killed)
	if otherwise > 0 {
		fmt.Fprintf(out, "  (and it ended %d times by itself)", otherwise)
	}
	fmt.Fprintln(out)
}

// Rows returns the results as rows of a table, except for the messages themselves.
func (v Verdict) Rows() []Row {
	return []Row{
		{"findings to be announced", v.Findings},
		{"  new", v.Changes[v1alpha1.ChangeNew]},
		{"  with a fix", v.Changes[v1alpha1.ChangeFixAvailable]},
		{"  more urgent", v.Changes[v1alpha1.ChangeEscalated]},
		{"  fixed", v.Changes[v1alpha1.ChangeFixed]},
		{"lost", len(v.Lost)},
		{"announced and not true", len(v.Unfounded)},
		{"doubled messages", len(v.Repeated)},
		{"  allowed: one for each fault or missing answer", v.Allowed()},
		{"  that nothing explains", len(v.Unexplained)},
	}
}

// Problems returns an error for everything that must not happen.
func (v Verdict) Problems() error {
	var errs []error
	if len(v.Lost) > 0 {
		errs = append(errs, fmt.Errorf("%d findings are lost, such as %s for %s", len(v.Lost), v.Lost[0].Name, v.Lost[0].Webhook))
	}
	if len(v.Unfounded) > 0 {
		errs = append(errs, fmt.Errorf("%d were announced and not true then, such as %s for %s", len(v.Unfounded), v.Unfounded[0].Name, v.Unfounded[0].Webhook))
	}
	if len(v.Repeated) > v.Allowed() {
		errs = append(errs, fmt.Errorf("%d messages are doubled, more than the %d faults and missing answers", len(v.Repeated), v.Allowed()))
	}
	for _, again := range v.Unexplained {
		errs = append(errs, fmt.Errorf("a message came twice though it was answered and the notifier knew it: %s at %s", again.Webhook, again.Accepted.Format(Stamp)))
	}
	for _, bad := range v.Invalid {
		why := bad.Broken
		for _, violation := range bad.Violations {
			why = cmp.Or(why, errors.New(violation.Detail))
		}
		errs = append(errs, fmt.Errorf("a message that Slack would not take, for %s: %w", bad.Webhook, why))
	}
	return errors.Join(errs...)
}

// Stamp is the format of times in results.
const Stamp = "15:04:05.000"

// Write writes messages for the analysis of failures.
func Write(out io.Writer, accepted []Message) error {
	for _, m := range accepted {
		answer := "no answer"
		if !m.Answered.IsZero() {
			answer = "answered " + m.Answered.Format(Stamp)
		}
		if _, err := fmt.Fprintf(out, "──── %s accepted %s, %s\n%s\n\n", m.Webhook, m.Accepted.Format(Stamp), answer, m.Text); err != nil {
			return err
		}
	}
	return nil
}
