package store

import (
	"fmt"
	"testing"
)

// TestThreads: the thread of a finding is that of the message that announced it first, for this receiver only.
func TestThreads(t *testing.T) {
	f := newStore(t)
	a, b, c := AnnouncementKey{"r", "CVE-2026-0001", "a"}, AnnouncementKey{"r", "CVE-2026-0001", "b\x01\"<"}, AnnouncementKey{"r", "CVE-2026-0003", "a"}
	announce := func(receiver string, announcement Announcement) {
		t.Helper()
		must(t, f.RecordAnnouncement(t.Context(), "scanner", receiver, announcement))
	}
	announce("slack", Announcement{MessageID: "1", Findings: announcedFindings(a), Thread: &Thread{"#shop", "1.1"}})
	announce("slack", Announcement{MessageID: "2", Findings: announcedFindings(a, b), Thread: &Thread{"#shop", "2.1"}})
	announce("slack", Announcement{MessageID: "3", Findings: announcedFindings(c)})
	announce("mail", Announcement{MessageID: "4", Findings: announcedFindings(a, c), Thread: &Thread{"#mail", "4.1"}})
	threads := func(receiver string, keys ...AnnouncementKey) map[AnnouncementKey]Thread {
		t.Helper()
		return got[map[AnnouncementKey]Thread](t)(f.Threads(t.Context(), "scanner", receiver, keys))
	}
	equal(t, "the threads", threads("slack", a, b, c), map[AnnouncementKey]Thread{a: {"#shop", "1.1"}, b: {"#shop", "2.1"}})
	equal(t, "one of them", threads("slack", b), map[AnnouncementKey]Thread{b: {"#shop", "2.1"}})
	equal(t, "those of another receiver", threads("mail", a, b), map[AnnouncementKey]Thread{a: {"#mail", "4.1"}})
	equal(t, "those of no finding", threads("slack"), map[AnnouncementKey]Thread{})

	announce("slack", Announcement{MessageID: "5", Findings: announcedFindings(a), Thread: &Thread{"#shop", "5.1"}, LostThread: "1.1"})
	equal(t, "after a thread was lost", threads("slack", a, b), map[AnnouncementKey]Thread{a: {"#shop", "5.1"}, b: {"#shop", "2.1"}})
	must(t, f.RetainReceivers(t.Context(), "scanner", []string{"mail"}))
	var left int
	must(t, f.reader.QueryRow(`SELECT count(*) FROM threads`).Scan(&left))
	equal(t, "threads after the receiver was removed", left, 1)
}

// TestThreadOfASilentRecord: a finding that was recorded without a message, or that an exception suppressed, is announced by the next message.
func TestThreadOfASilentRecord(t *testing.T) {
	f := newStore(t)
	key := AnnouncementKey{"r", "CVE-2026-0001", "a"}
	announce := func(announcement Announcement) string {
		t.Helper()
		announcement.Findings = announcedFindings(key)
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
		return got[map[AnnouncementKey]Thread](t)(f.Threads(t.Context(), "scanner", "slack", []AnnouncementKey{key}))[key].Timestamp
	}
	equal(t, "recorded without a message", announce(Announcement{}), "")
	equal(t, "announced", announce(Announcement{MessageID: "1", Thread: &Thread{"#shop", "1.1"}}), "1.1")
	equal(t, "announced again", announce(Announcement{MessageID: "2", Thread: &Thread{"#shop", "2.1"}}), "1.1")
	must(t, f.exec(t.Context(), "suppress", `UPDATE announcements SET excepted = 1`))
	equal(t, "after an exception", announce(Announcement{MessageID: "3", Thread: &Thread{"#shop", "3.1"}}), "3.1")
}

// TestThreadsAreBounded: the latest threads of a receiver are kept.
func TestThreadsAreBounded(t *testing.T) {
	f := newStore(t)
	for n := range MaxThreads + 2 {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", Announcement{
			MessageID: fmt.Sprint(n), Findings: announcedFindings(AnnouncementKey{"r", fmt.Sprint(n), "a"}), Thread: &Thread{"#shop", fmt.Sprint(n)},
		}))
	}
	keys := []AnnouncementKey{{"r", "1", "a"}, {"r", "2", "a"}, {"r", fmt.Sprint(MaxThreads + 1), "a"}}
	equal(t, "threads", got[map[AnnouncementKey]Thread](t)(f.Threads(t.Context(), "scanner", "slack", keys)),
		map[AnnouncementKey]Thread{keys[1]: {"#shop", "2"}, keys[2]: {"#shop", fmt.Sprint(MaxThreads + 1)}})
}
