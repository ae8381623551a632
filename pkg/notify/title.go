package notify

import (
	"fmt"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// MaxTitleBytes bounds Digest.Title.
const MaxTitleBytes = 256

// Title says in one line of plain text what a message is about, in at most MaxTitleBytes.
func (d Digest) Title() string {
	return clip(d.subject(), MaxTitleBytes)
}

func (d Digest) subject() string {
	in := " in " + d.Namespace
	all := fmt.Sprintf("%s in %s", count(d.Totals.Total(), "finding"), count(d.Images, "image"))
	switch d.Kind {
	case KindFirstScan:
		return fmt.Sprintf("First scan of %s: %s", d.Namespace, all)
	case KindBaselineRenewed:
		return fmt.Sprintf("Baseline renewed for %s: %s", d.Namespace, all)
	case KindEngineChanged:
		return fmt.Sprintf("Engine changed for %s: %s", d.Namespace, all)
	case KindEngineUpdated:
		return fmt.Sprintf("Engine updated for %s: finds %s more", d.Namespace, count(d.Untold, "finding"))
	case KindFilterWidened:
		return fmt.Sprintf("More is told of %s: %s that %s there before", d.Namespace, count(d.Untold, "finding"), one(d.Untold, "was", "were"))
	}
	var parts []string
	for _, c := range titles {
		if n := d.Changes[c.change]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, one(n, c.one, c.many)))
		}
	}
	if len(parts) == 0 && len(d.Notices) == 1 {
		return noticeTitle(d.Notices[0]) + in
	}
	if n := len(d.Notices); n > 0 {
		parts = append(parts, count(n, "notice"))
	}
	return strings.Join(parts, ", ") + in
}

// titles names changes, those first that ask for more.
var titles = []struct {
	change    store.Change
	one, many string
}{
	{store.ChangeNew, "new finding", "new findings"},
	{store.ChangeEscalated, "escalated", "escalated"},
	{store.ChangeRegressed, "back again", "back again"},
	{store.ChangeFixAvailable, "fix available", "fixes available"},
	{store.ChangeFixed, "fixed", "fixed"},
	{store.ChangeNewImage, "new image", "new images"},
}

// noticeTitle says what one notice is about.
func noticeTitle(n Notice) string {
	begun, over := "Notice", "Notice over"
	switch n.Kind {
	case NoticeScansFailing:
		begun, over = "Scans do not succeed", "Scans succeed again"
	case NoticeDataOutdated:
		begun, over = "Vulnerability data is outdated", "Vulnerability data is up to date again"
	case NoticeDataSuspect:
		begun, over = "Vulnerability data looks wrong", "Vulnerability data looks right again"
	case NoticeImagesFailed:
		begun, over = "Images cannot be scanned", "Images can be scanned again"
	case NoticeExceptionExpires:
		begun = "An exception expires"
	}
	if n.Over {
		return over
	}
	return begun
}

func count(n int, of string) string { return fmt.Sprintf("%d %s", n, one(n, of, of+"s")) }

func one(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}
