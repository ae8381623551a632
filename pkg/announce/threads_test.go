package announce

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// asApp makes the scenario's receiver a Slack app.
func (s *scenario) asApp() {
	s.settings.Address = ReceiverRef{Type: ReceiverTypeSlackApp, Namespace: "shop", SecretName: "slack", SecretKey: "token", Channel: "#shop"}
}

func withoutFix(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateNotFixed, nil }

// announced returns a scenario of a Slack app with one message for each of some images. Each announced one finding without a fix. The message
// about image n has the timestamp "n.1" and the finding CVE-2026-000n.
func announced(t *testing.T, images int) *scenario {
	t.Helper()
	var names []string
	for i := range images {
		names = append(names, fmt.Sprintf("app-%d", i+1))
	}
	s := afterBaseline(t, names...)
	s.asApp()
	for i, name := range names {
		s.addFindings(name, finding.High, i+1, 1, withoutFix)
		s.dispatchUntilIdle()
		s.pass(time.Hour)
	}
	if diff := cmp.Diff(make([]string, images), s.threads); diff != "" {
		t.Fatalf("threads of the first messages (-want +got):\n%s", diff)
	}
	return s
}

// fix makes a fix known for the findings of some images.
func (s *scenario) fix(images ...int) {
	for _, n := range images {
		s.addFindings(fmt.Sprintf("app-%d", n), finding.High, n, 1)
	}
}

// reply is a message and the thread that it was sent to.
type reply struct {
	Thread   string
	Findings []string
}

// since returns the messages that were sent after the first n.
func (s *scenario) since(n int) (replies []reply) {
	for i, m := range s.sent[n:] {
		r := reply{Thread: s.threads[n+i]}
		for _, section := range m.Sections {
			for _, item := range section.Items {
				r.Findings = append(r.Findings, string(item.Change)+" "+item.ID)
			}
		}
		replies = append(replies, r)
	}
	return replies
}

func (s *scenario) wantSince(n int, want ...reply) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.since(n)); diff != "" {
		s.t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestReplies: what is new goes to the channel, and other changes are replies to the messages that announced their findings. The messages follow
// at once.
func TestReplies(t *testing.T) {
	s := announced(t, 3)
	s.fix(1, 3)
	s.addFindings("app-2", finding.High, 9, 1)
	began := s.now
	s.dispatchUntilIdle()
	s.wantSince(3,
		reply{"", []string{"New CVE-2026-0009"}}, reply{"1.1", []string{"FixAvailable CVE-2026-0001"}}, reply{"3.1", []string{"FixAvailable CVE-2026-0003"}})
	if took, want := s.now.Sub(began), s.settings.GroupWait+2*attemptGap; took != want {
		t.Errorf("the messages took %s, want %s", took, want)
	}
}

// TestRepliesOnly: without anything new, there is no message to the channel.
func TestRepliesOnly(t *testing.T) {
	s := announced(t, 3)
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeFixed}
	s.fix(1)
	for range 2 { // versions of the data
		s.data++
		s.removeFindings("app-2")
	}
	s.dispatchUntilIdle()
	s.wantSince(3, reply{"1.1", []string{"FixAvailable CVE-2026-0001"}}, reply{"2.1", []string{"Fixed CVE-2026-0002"}})
}

// TestManyThreads: changes that concern more than three threads are one message in the channel.
func TestManyThreads(t *testing.T) {
	s := announced(t, 4)
	s.fix(1, 2, 3, 4)
	s.dispatchUntilIdle()
	s.wantSince(4, reply{"", []string{"FixAvailable CVE-2026-0001", "FixAvailable CVE-2026-0002", "FixAvailable CVE-2026-0003", "FixAvailable CVE-2026-0004"}})
}

// TestReplyToSummary: changes of what a summary announced are replies to the summary.
func TestReplyToSummary(t *testing.T) {
	s := newScenario(t)
	s.asApp()
	s.addFindings("app-1", finding.High, 1, 1, withoutFix)
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	s.fix(1)
	s.dispatchUntilIdle()
	s.wantSince(1, reply{"1.1", []string{"FixAvailable CVE-2026-0001"}})
}

// TestLostThread: a reply goes to the channel if its thread is not known, or is in a channel that the receiver has no more.
func TestLostThread(t *testing.T) {
	for name, lose := range map[string]func(*scenario){
		"another channel": func(s *scenario) { s.settings.Address.Channel = "#other" },
		"now a webhook":   func(s *scenario) { s.settings.Address = ReceiverRef{Type: ReceiverTypeSlack, SecretName: "slack"} },
		"announced by a webhook": func(s *scenario) {
			s.must(s.store.RetainReceivers(context.Background(), scannerUID, nil))
			s.settings.Address = ReceiverRef{Type: ReceiverTypeSlack, SecretName: "slack"}
			s.settings.FirstScan = FirstScanAll
			s.dispatchUntilIdle()
			s.pass(time.Hour)
			s.asApp()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := announced(t, 2)
			lose(s)
			sent := len(s.sent)
			s.fix(1, 2)
			s.dispatchUntilIdle()
			s.wantSince(sent, reply{"", []string{"FixAvailable CVE-2026-0001", "FixAvailable CVE-2026-0002"}})
		})
	}
}

// TestDeletedThread: a reply whose thread was deleted is in the channel, and takes the place of the thread's first message.
func TestDeletedThread(t *testing.T) {
	s := announced(t, 1)
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeFixed}
	s.outcomes = []Outcome{{Result: Delivered, Timestamp: "7.7"}}
	s.fix(1)
	s.dispatchUntilIdle()
	s.pass(time.Hour)
	for range 2 { // versions of the data
		s.data++
		s.removeFindings("app-1")
	}
	s.dispatchUntilIdle()
	s.wantSince(1, reply{"1.1", []string{"FixAvailable CVE-2026-0001"}}, reply{"7.7", []string{"Fixed CVE-2026-0001"}})
}

// TestFailingReply: a reply that is not delivered is sent again to its thread. The other replies wait for it.
func TestFailingReply(t *testing.T) {
	s := announced(t, 2)
	s.fix(1, 2)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed}, answerLost}
	s.dispatchUntilIdle()
	first, second := reply{"1.1", []string{"FixAvailable CVE-2026-0001"}}, reply{"2.1", []string{"FixAvailable CVE-2026-0002"}}
	s.wantSince(2, first, first, first, second)
	if s.sent[2].ID != s.sent[4].ID {
		t.Errorf("the reply was sent as messages %s and %s, want the same ID", s.sent[2].ID, s.sent[4].ID)
	}
}

// TestOutdatedReply: a reply that is refused for too long is composed again, with what is true then. So are the replies that wait for it.
func TestOutdatedReply(t *testing.T) {
	s := announced(t, 2)
	s.fix(1, 2)
	for range 4 {
		s.outcomes = append(s.outcomes, Outcome{Result: Permanent, Reason: ReasonReceiverRefused})
	}
	s.dispatch()
	s.dispatchNext()
	s.removeFindings("app-1")
	s.dispatchUntilIdle()
	replies := s.since(2)
	want := []reply{{"2.1", []string{"FixAvailable CVE-2026-0002"}}}
	if diff := cmp.Diff(want, replies[len(replies)-1:]); diff != "" || s.notAnnounced() != 0 {
		t.Errorf("last message (-want +got):\n%s", diff)
	}
}

// TestNewFindingDuringReplies: what is new while replies are sent waits for groupInterval.
func TestNewFindingDuringReplies(t *testing.T) {
	s := announced(t, 2)
	s.fix(1, 2)
	s.dispatch()
	s.dispatchNext()
	s.addFindings("app-1", finding.High, 9, 1)
	s.dispatchNext()
	last := s.now
	for s.dispatch(); len(s.sent) < 5; {
		s.dispatchNext()
	}
	s.wantSince(2, reply{"1.1", []string{"FixAvailable CVE-2026-0001"}}, reply{"2.1", []string{"FixAvailable CVE-2026-0002"}}, reply{"", []string{"New CVE-2026-0009"}})
	if waited := s.now.Sub(last); waited < s.settings.GroupInterval-2*attemptGap {
		t.Errorf("the new finding waited for %s, want about %s", waited, s.settings.GroupInterval)
	}
}

// TestIsChannel: IDs of channels and persons, and names of channels are accepted. Anything with markup is not.
func TestIsChannel(t *testing.T) {
	for text, want := range map[string]bool{
		"C0123456789": true, "G0123456789": true, "#security": true, "#sécurité-監視": true, "#a.b_c": true,
		"U0123456789": true, "W0123456789": true, "D0123456789": true,
		"": false, "#": false, "security": false, "U1": false, "B0123456789": false, "@U0123456789": false, "C1": false, "c0123456789": false,
		"#a b": false, "#a\n": false, "#<!channel>": false, "#a#b": false, "@here": false, "C0123456789 ": false,
	} {
		if got := IsChannel(text); got != want {
			t.Errorf("IsChannel(%q) is %t, want %t", text, got, want)
		}
	}
}
