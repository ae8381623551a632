package slack

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Bounds of the notices in one message: number of blocks, and bytes of all of them.
const (
	maxNotices     = 8
	maxNoticesText = 3600
)

// notices adds the Scanner's health notices, and counts those that do not fit.
func (m *message) notices(d announce.Message) {
	length := 0
	for i, n := range d.Notices {
		text := noticeText(d, n)
		if length += len(text); i == maxNotices-1 && len(d.Notices) > maxNotices || length > maxNoticesText {
			m.section(fmt.Sprintf("and %s: %s", announce.Pluralize(len(d.Notices)-i, "more notice"), describe(d)))
			return
		}
		m.section(text)
	}
}

// noticeText renders one notice: the problem in bold, then the details, then what to do.
func noticeText(d announce.Message, n announce.Notice) string {
	if n.Over {
		return "*" + overText(n) + "*"
	}
	lines := []string{"*" + problemText(n) + "*"}
	if examples := list(n.Examples, maxRepository, maxExamples, n.Count-len(n.Examples)); len(n.Examples) > 0 {
		lines = append(lines, examples)
	}
	if n.Detail != "" {
		lines = append(lines, escapedText(n.Detail, maxDetail))
	}
	return strings.Join(append(lines, whatToDo(d, n)), "\n")
}

func problemText(n announce.Notice) string {
	switch n.Kind {
	case announce.NoticeScansFailing:
		text := "No scan has succeeded" + cmp.Or(since(n.Since), " for a while")
		if n.Count > 0 {
			text += ": " + announce.Pluralize(n.Count, "image") + " without a new result"
		}
		return text
	case announce.NoticeDataOutdated:
		return "The vulnerability data is out of date" + since(n.Since)
	case announce.NoticeDataAnomaly:
		return "The vulnerability data looks wrong: one version of it lost too many findings"
	case announce.NoticeImagesFailed:
		return fmt.Sprintf("%s cannot be scanned: %s", announce.Pluralize(n.Count, "image"), escapedName(n.Reason, maxReason))
	case announce.NoticeUnconfirmed:
		return "Receiver " + escapedName(n.Name, maxWorkload) + " does not answer" + since(n.Since)
	case announce.NoticeExceptionExpires:
		text := "Exception " + escapedName(n.Name, maxWorkload) + " expires"
		if n.Until.IsZero() {
			return text + " soon"
		}
		return text + " on " + timestamp(n.Until)
	}
	return escapedName(string(n.Kind), maxReason) + since(n.Since)
}

func overText(n announce.Notice) string {
	switch n.Kind {
	case announce.NoticeScansFailing:
		return "Scans succeed again"
	case announce.NoticeDataOutdated:
		return "The vulnerability data is up to date again"
	case announce.NoticeDataAnomaly:
		return "The quarantine of the vulnerability data is over: fixed findings are announced again"
	case announce.NoticeImagesFailed:
		return "No image fails any more with " + escapedName(n.Reason, maxReason)
	case announce.NoticeUnconfirmed:
		return "Receiver " + escapedName(n.Name, maxWorkload) + " answers again"
	}
	return escapedName(string(n.Kind), maxReason) + " is over"
}

// whatToDo returns the consequence of a notice and how to investigate it.
func whatToDo(d announce.Message, n announce.Notice) string {
	switch n.Kind {
	case announce.NoticeScansFailing:
		return "Newly published vulnerabilities may go unnoticed. To see the reason: " + describe(d)
	case announce.NoticeDataOutdated:
		return "Vulnerabilities that were published since then are not found. To see why there is no newer data: " + describe(d)
	case announce.NoticeDataAnomaly:
		return "Until they are back, for at most 14 days, no finding counts as fixed. To see the data: " + describe(d)
	case announce.NoticeImagesFailed:
		return "To see the reason: " + code(getImageScans(d))
	case announce.NoticeUnconfirmed:
		return "Its channel may lack " + announce.Pluralize(n.Count, "message") + ". To see the reason: " + describe(d)
	case announce.NoticeExceptionExpires:
		return "Then " + suppressedText(n) + " announced again. To extend the exception, change its spec.expirationTime: " + editException(n.Name)
	}
	return "To see the reason: " + describe(d)
}

func suppressedText(n announce.Notice) string {
	switch n.Count {
	case 0:
		return "findings that it suppresses are"
	case 1:
		return "the finding that it suppresses is"
	}
	return fmt.Sprintf("the %d findings that it suppresses are", n.Count)
}

func editException(exception string) string {
	if namespace, own, namespaced := strings.Cut(exception, "/"); namespaced {
		return code("kubectl -n " + namespace + " edit vulnerabilityexception " + own)
	}
	return code("kubectl edit clustervulnerabilityexception " + exception)
}

func describe(d announce.Message) string {
	if d.ScannerKind == announce.ClusterScannerKind {
		return code("kubectl describe clusterscanner " + d.Scanner)
	}
	return code("kubectl -n " + d.Namespace + " describe scanner " + d.Scanner)
}
