package storetest

import (
	"fmt"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testThreads: the thread of a finding is that of the message that announced it first, for this receiver only.
func (on suite) testThreads(t *testing.T) {
	f := on.newStore(t)
	a, b, c := announcementKey("r", "CVE-2026-0001", "a"), announcementKey("r", "CVE-2026-0001", "b\x01\"<"), announcementKey("r", "CVE-2026-0003", "a")
	announce := func(receiver string, announcement store.Announcement) {
		t.Helper()
		must(t, f.RecordAnnouncement(t.Context(), "scanner", receiver, announcement))
	}
	announce("slack", store.Announcement{MessageID: "1", Findings: announcedFindings(a), Thread: &store.Thread{Channel: "#shop", Timestamp: "1.1"}})
	announce("slack", store.Announcement{MessageID: "2", Findings: announcedFindings(a, b), Thread: &store.Thread{Channel: "#shop", Timestamp: "2.1"}})
	announce("slack", store.Announcement{MessageID: "3", Findings: announcedFindings(c)})
	announce("mail", store.Announcement{MessageID: "4", Findings: announcedFindings(a, c), Thread: &store.Thread{Channel: "#mail", Timestamp: "4.1"}})
	threads := func(receiver string, keys ...store.AnnouncementKey) map[store.AnnouncementKey]store.Thread {
		t.Helper()
		return got[map[store.AnnouncementKey]store.Thread](t)(f.Threads(t.Context(), "scanner", receiver, keys))
	}
	equal(t, "the threads", threads("slack", a, b, c), map[store.AnnouncementKey]store.Thread{a: {Channel: "#shop", Timestamp: "1.1"}, b: {Channel: "#shop", Timestamp: "2.1"}})
	equal(t, "one of them", threads("slack", b), map[store.AnnouncementKey]store.Thread{b: {Channel: "#shop", Timestamp: "2.1"}})
	equal(t, "those of another receiver", threads("mail", a, b), map[store.AnnouncementKey]store.Thread{a: {Channel: "#mail", Timestamp: "4.1"}})
	equal(t, "those of no finding", threads("slack"), map[store.AnnouncementKey]store.Thread{})

	announce("slack", store.Announcement{MessageID: "5", Findings: announcedFindings(a), Thread: &store.Thread{Channel: "#shop", Timestamp: "5.1"}, LostThread: "1.1"})
	equal(t, "after a thread was lost", threads("slack", a, b), map[store.AnnouncementKey]store.Thread{a: {Channel: "#shop", Timestamp: "5.1"}, b: {Channel: "#shop", Timestamp: "2.1"}})
	must(t, f.RetainReceivers(t.Context(), "scanner", []string{"mail"}))
	equal(t, "threads after the receiver was removed", f.count(t, "threads"), 1)
}

// testThreadOfASilentRecord: a finding that was recorded without a message, or that an exception suppressed, is announced by the next message.
func (on suite) testThreadOfASilentRecord(t *testing.T) {
	f := on.newStore(t)
	key := announcementKey("r", "CVE-2026-0001", "a")
	announce := func(announcement store.Announcement) string {
		t.Helper()
		announcement.Findings = announcedFindings(key)
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
		return got[map[store.AnnouncementKey]store.Thread](t)(f.Threads(t.Context(), "scanner", "slack", []store.AnnouncementKey{key}))[key].Timestamp
	}
	equal(t, "recorded without a message", announce(store.Announcement{}), "")
	equal(t, "announced", announce(store.Announcement{MessageID: "1", Thread: &store.Thread{Channel: "#shop", Timestamp: "1.1"}}), "1.1")
	equal(t, "announced again", announce(store.Announcement{MessageID: "2", Thread: &store.Thread{Channel: "#shop", Timestamp: "2.1"}}), "1.1")
	f.exec(t, `UPDATE announcements SET excepted = 1`)
	equal(t, "after an exception", announce(store.Announcement{MessageID: "3", Thread: &store.Thread{Channel: "#shop", Timestamp: "3.1"}}), "3.1")
}

// testThreadsAreBounded: the latest threads of a receiver are kept.
func (on suite) testThreadsAreBounded(t *testing.T) {
	f := on.newStore(t)
	for n := range store.MaxThreads + 2 {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{
			MessageID: fmt.Sprint(n), Findings: announcedFindings(announcementKey("r", fmt.Sprint(n), "a")), Thread: &store.Thread{Channel: "#shop", Timestamp: fmt.Sprint(n)},
		}))
	}
	keys := []store.AnnouncementKey{announcementKey("r", "1", "a"), announcementKey("r", "2", "a"), announcementKey("r", fmt.Sprint(store.MaxThreads+1), "a")}
	equal(t, "threads", got[map[store.AnnouncementKey]store.Thread](t)(f.Threads(t.Context(), "scanner", "slack", keys)),
		map[store.AnnouncementKey]store.Thread{keys[1]: {Channel: "#shop", Timestamp: "2"}, keys[2]: {Channel: "#shop", Timestamp: fmt.Sprint(store.MaxThreads + 1)}})
}
