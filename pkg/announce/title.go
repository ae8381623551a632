package announce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

const (
	// MaxTitleBytes bounds Message.Title.
	MaxTitleBytes = 256
	// maxTitleLine is the room for a title that names a finding and why the message comes: that of a title in Slack.
	maxTitleLine = 150
	// maxTitleID bounds a vulnerability ID in a title.
	maxTitleID = 64
)

// Title returns the message's subject in plain words, at most MaxTitleBytes. Names in it are not escaped: the caller must escape them for
// its output format.
func (m Message) Title() string { return text.Truncate(m.subject(), MaxTitleBytes) }

// where returns what the message is about: the namespace, the number of namespaces, or the cluster.
func (m Message) where() string {
	only := len(m.OnlyNamespaces) + max(0, m.MoreOnlyNamespaces)
	switch {
	case m.ScannerKind != ClusterScannerKind:
		return m.inCluster(m.Namespace)
	case only == 0 && m.Cluster != "":
		return "cluster " + m.Cluster
	case only == 0:
		return "the cluster"
	case only == 1 && len(m.OnlyNamespaces) == 1:
		return m.inCluster(m.OnlyNamespaces[0])
	case m.Cluster != "":
		return Pluralize(only, "namespace") + " of " + m.Cluster
	}
	return Pluralize(only, "namespace")
}

// inCluster returns the name of a namespace, behind that of the cluster if it has one.
func (m Message) inCluster(namespace string) string {
	if m.Cluster == "" {
		return namespace
	}
	return m.Cluster + "/" + namespace
}

// subject begins with what is known to be exploited, and with what to do about it, such as "Exploited now: CVE-2023-5363 in nginx (Deployment web and
// 4 more): update libssl3 to 3.0.11-1, and 1 more exploited · shop". A phone shows little more than the beginning.
func (m Message) subject() string {
	n := m.Totals.KnownExploited
	worst := m.Exploited()
	switch {
	case m.Kind == KindTest, worst == nil && n <= 0:
		head, rest := m.occasion()
		return head + rest
	case worst == nil:
		head, rest := m.occasion()
		return fmt.Sprintf("Exploited now: %s · %s", Pluralize(n, "finding"), head+rest)
	}
	about := m.where()
	if m.Kind != KindChanges {
		about, _ = m.occasion()
	}
	about = " · " + about
	title, room := m.exploitedTitle(*worst), max(maxTitleLine-len(about), maxTitleLine/2)
	if len(title) > room {
		worst.Workloads = nil
		title = m.exploitedTitle(*worst)
	}
	return text.Truncate(title, room) + about
}

// occasion returns why a message comes and for what, such as "First scan of shop", and what it has, such as ": 3 findings in 2 images".
func (m Message) occasion() (head, rest string) {
	all := ": " + Pluralize(m.Totals.Total(), "finding") + " in " + Pluralize(m.Images, "image")
	switch m.Kind {
	case KindTest:
		return "Test message for " + m.where(), ""
	case KindChanges:
		return m.changesTitle(), ""
	case KindBaselineRenewed:
		return "Baseline renewed for " + m.where(), all
	case KindEngineChanged:
		return "Engine changed for " + m.where(), all
	case KindEngineUpdated:
		return "Engine updated for " + m.where(), fmt.Sprintf(": it finds %d more", m.NotAnnounced)
	case KindStoreRestored:
		return "Restored from a backup for " + m.where(), fmt.Sprintf(": %s since then", Pluralize(m.NotAnnounced, "finding"))
	case KindScheduledSummary:
		return "Summary of " + m.where(), all + m.Trend.title()
	case KindFilterWidened:
		return "Wider filter for " + m.where(), fmt.Sprintf(": %s not announced before", Pluralize(m.NotAnnounced, "finding"))
	}
	return "First scan of " + m.where(), all
}

// Ended returns how many findings have ended, such as "3 ended, 2 of them not proven".
func (t *Trend) Ended() string {
	ended := fmt.Sprintf("%d ended", t.Fixed)
	if t.NotProven > 0 {
		ended += fmt.Sprintf(", %d of them not proven", t.NotProven)
	}
	return ended
}

// title returns what has happened, such as ", 4 opened, 2 ended".
func (t *Trend) title() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", %d opened, %s", t.Opened, t.Ended())
}

// Bounds of the names in the title of a message about an exploited vulnerability. Together they leave room for what to do.
const (
	maxTitleImage    = 36
	maxTitleWorkload = 32
	maxTitlePackage  = 28
	maxTitleVersion  = 24
)

// exploitedTitle names a finding that is known to be exploited, what to do about it, and the number of others.
func (m Message) exploitedTitle(e Item) string {
	what := "no fix yet"
	if e.FixedIn != "" {
		what = fmt.Sprintf("update %s to %s", text.TruncateMiddle(e.Package, maxTitlePackage), text.Truncate(strings.ReplaceAll(e.FixedIn, ", ", " or "), maxTitleVersion))
	}
	more := ""
	if n := m.Totals.KnownExploited; n > 1 {
		more = fmt.Sprintf(", and %d more exploited", n-1)
	}
	image := FamiliarName(e.Repository)
	if len(image) > maxTitleImage {
		// The end tells images apart.
		image = text.Truncate("…"+image[max(0, strings.LastIndex(image, "/")):], maxTitleImage)
	}
	return fmt.Sprintf("Exploited now: %s in %s%s: %s%s", text.Truncate(e.ID, maxTitleID), image, m.runsIn(e.Workloads, e.MoreWorkloads), what, more)
}

// Exploited returns the worst finding of a message that is known to be exploited, with its repository and workloads in messages of every kind; nil if no
// listed one is. One that is fixed does not count.
func (m Message) Exploited() (worst *Item) {
	add := func(i Item, repository string, workloads []string, more int) {
		if i.KnownExploited && i.Change != diff.ChangeFixed && (worst == nil || i.Severity > worst.Severity) {
			i.Repository, i.Workloads, i.MoreWorkloads = repository, workloads, more
			worst = &i
		}
	}
	for _, s := range m.Sections {
		for _, i := range s.Items {
			add(i, s.Repository, s.Workloads, s.MoreWorkloads)
		}
	}
	rest := m.Worst
	for _, a := range m.Actions {
		n := min(max(a.Items, 0), len(rest))
		for _, i := range rest[:n] {
			add(i, a.Repository, a.Workloads, a.MoreWorkloads)
		}
		rest = rest[n:]
	}
	for _, i := range rest {
		add(i, i.Repository, i.Workloads, i.MoreWorkloads)
	}
	if oldest := m.OldestExploited; worst == nil && oldest != nil {
		add(*oldest, oldest.Repository, oldest.Workloads, oldest.MoreWorkloads)
	}
	return worst
}

// runsIn returns a workload, rather one that runs all the time, and the number of the others, such as " (Deployment web and 4 more)".
func (m Message) runsIn(workloads []string, more int) string {
	if len(workloads) == 0 {
		return ""
	}
	first := max(0, slices.IndexFunc(workloads, func(w string) bool { return !strings.HasPrefix(w, "CronJob ") && !strings.HasPrefix(w, "Job ") }))
	name := text.TruncateMiddle(strings.Replace(workloads[first], " "+m.Namespace+"/", " ", 1), maxTitleWorkload)
	if more = len(workloads) - 1 + max(0, more); more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return " (" + name + ")"
}

// FamiliarName returns a repository without the parts that Docker adds to the name of an image of Docker Hub: "nginx" for
// docker.io/library/nginx. No other repository has this name.
func FamiliarName(repository string) string {
	name, onHub := strings.CutPrefix(repository, "docker.io/")
	if !onHub || name == "" {
		return repository
	}
	if official, isOfficial := strings.CutPrefix(name, "library/"); isOfficial && official != "" {
		return official
	}
	return name
}

// changesTitle names the vulnerability if the message is about a single one, and counts the changes otherwise.
func (m Message) changesTitle() string {
	if item, only := m.singleChange(); only && len(m.JoinedNamespaces) == 0 {
		return fmt.Sprintf("%s: %s in %s", changeTitle(item), text.Truncate(item.ID, maxTitleID), m.where())
	}
	images := len(m.NewImages) + m.MoreNewImages
	andJoined := ""
	if len(m.JoinedNamespaces) > 0 {
		andJoined = ", and first scan of " + m.joined()
	}
	switch counts := m.changeCounts(); {
	case len(m.Changes) == 0 && andJoined != "":
		return fmt.Sprintf("First scan of %s: %s", m.joined(), Pluralize(m.Totals.Total(), "finding"))
	case counts != "":
		return counts + " in " + m.where() + andJoined
	case images > 0:
		return Pluralize(images, "new image") + " in " + m.where() + andJoined
	case len(m.Notices) == 0:
		return "Nothing new in " + m.where()
	}
	title := fmt.Sprintf("Scanner %s in %s: %s", m.Scanner, m.inCluster(m.Namespace), m.Notices[0].title())
	if m.ScannerKind == ClusterScannerKind {
		title = fmt.Sprintf("ClusterScanner %s: %s", m.inCluster(m.Scanner), m.Notices[0].title())
	}
	if more := len(m.Notices) - 1; more > 0 {
		title += fmt.Sprintf(", and %s", Pluralize(more, "more notice"))
	}
	return title
}

// joined names the namespace that joined a ClusterScanner, or counts several.
func (m Message) joined() string {
	if n := len(m.JoinedNamespaces) + max(0, m.MoreJoinedNamespaces); n > 1 {
		if m.Cluster != "" {
			return Pluralize(n, "namespace") + " of " + m.Cluster
		}
		return Pluralize(n, "namespace")
	}
	return "namespace " + m.inCluster(m.JoinedNamespaces[0].Namespace)
}

// SingleVulnerability returns the ID of the vulnerability that the title names, or "" if the message is about several.
func (m Message) SingleVulnerability() string {
	item, only := m.singleChange()
	if m.Kind != KindChanges || !only || len(m.JoinedNamespaces) > 0 {
		return ""
	}
	return item.ID
}

// singleChange returns an item and true if the message announces the same change of a single vulnerability throughout.
func (m Message) singleChange() (Item, bool) {
	var items []Item
	for _, s := range m.Sections {
		if s.MoreItems > 0 {
			return Item{}, false
		}
		items = append(items, s.Items...)
	}
	if len(items) == 0 || m.Rest.Findings > 0 {
		return Item{}, false
	}
	first := items[0]
	return first, !slices.ContainsFunc(items, func(i Item) bool { return i.ID != first.ID || changeTitle(i) != changeTitle(first) })
}

func changeTitle(i Item) string {
	switch i.Change {
	case diff.ChangeFixAvailable:
		return "Fix available"
	case diff.ChangeEscalated:
		return "More urgent"
	case diff.ChangeRegressed:
		return "Back again"
	case diff.ChangeFixed:
		return "Fixed"
	}
	if i.ExceptionEnded {
		return "Exception ended"
	}
	return "New"
}

// changeCounts counts the changes by kind, such as "2 new findings, 1 fix available, 3 fixed".
func (m Message) changeCounts() string {
	changes := m.Changes
	if len(changes) == 0 {
		// A message without counts by kind has only new findings.
		changes = map[diff.Change]int{diff.ChangeNew: m.Totals.Total()}
	}
	var parts []string
	for _, change := range []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed} {
		if n := changes[change]; n > 0 {
			parts = append(parts, changeCount(change, n, len(parts) == 0))
		}
	}
	return strings.Join(parts, ", ")
}

// changeCount returns a count such as "3 findings fixed". Only the first count of a title contains the word "findings", except for new
// ones.
func changeCount(change diff.Change, n int, first bool) string {
	number := fmt.Sprint(n)
	if first {
		number = Pluralize(n, "finding")
	}
	switch change {
	case diff.ChangeNew:
		return Pluralize(n, "new finding")
	case diff.ChangeFixAvailable:
		if n == 1 {
			return "1 fix available"
		}
		return fmt.Sprintf("%d fixes available", n)
	case diff.ChangeEscalated:
		return number + " more urgent"
	case diff.ChangeRegressed:
		return number + " back again"
	}
	return number + " fixed"
}

// title returns a notice in a few words.
func (n Notice) title() string {
	images := "images"
	if n.Count > 0 {
		images = Pluralize(n.Count, "image")
	}
	words := map[NoticeKind][2]string{
		NoticeScansFailing:     {"no scan succeeds", "scans succeed again"},
		NoticeDataOutdated:     {"the vulnerability data is out of date", "the vulnerability data is up to date again"},
		NoticeDataAnomaly:      {"the vulnerability data looks wrong", "the quarantine of the vulnerability data is over"},
		NoticeImagesFailed:     {images + " cannot be scanned", "images can be scanned again"},
		NoticeUnconfirmed:      {"another receiver does not answer", "another receiver answers again"},
		NoticeExceptionExpires: {"an exception is about to expire"}, // its end is not announced
	}[n.Kind]
	if n.Over {
		return cmp.Or(words[1], "a problem is over")
	}
	return cmp.Or(words[0], "there is a problem")
}

// Pluralize returns a number with its noun, in the plural unless n is 1.
func Pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
