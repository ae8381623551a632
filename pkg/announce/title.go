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

func (m Message) subject() string {
	all := Pluralize(m.Totals.Total(), "finding") + " in " + Pluralize(m.Images, "image")
	if n := m.Totals.KnownExploited; n > 0 {
		all = fmt.Sprintf("%d known exploited among %s", n, all)
	}
	switch m.Kind {
	case KindTest:
		return "Test message for " + m.where()
	case KindChanges:
		return m.exploitedTitle()
	case KindBaselineRenewed:
		return fmt.Sprintf("Baseline renewed for %s: %s", m.where(), all)
	case KindEngineChanged:
		return fmt.Sprintf("Engine changed for %s: %s", m.where(), all)
	case KindEngineUpdated:
		return fmt.Sprintf("Engine updated for %s: it finds %d more", m.where(), m.NotAnnounced)
	case KindStoreRestored:
		return fmt.Sprintf("Restored from a backup for %s: %s since then", m.where(), Pluralize(m.NotAnnounced, "finding"))
	case KindScheduledSummary:
		return fmt.Sprintf("Summary of %s: %s%s", m.where(), all, m.Trend.title())
	case KindFilterWidened:
		return fmt.Sprintf("Wider filter for %s: %s not announced before", m.where(), Pluralize(m.NotAnnounced, "finding"))
	}
	return fmt.Sprintf("First scan of %s: %s", m.where(), all)
}

// title returns what has happened, such as ", 4 opened, 2 ended".
func (t *Trend) title() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", %d opened, %d ended", t.Opened, t.Fixed)
}

// Bounds of the names in the title of a message about an exploited vulnerability. Together they leave room for what to do.
const (
	maxTitleImage    = 36
	maxTitleWorkload = 32
	maxTitlePackage  = 28
	maxTitleVersion  = 24
)

// exploitedTitle begins with what is known to be exploited and with what to do about it, such as "Exploited now: CVE-2023-5363 in nginx (Deployment web and
// 4 more): update libssl3 to 3.0.11-1, and 1 more exploited · shop". A phone shows little more than the beginning. Without anything exploited, the
// title is that of the changes.
func (m Message) exploitedTitle() string {
	title, n := m.changesTitle(), m.Totals.KnownExploited
	section, item := m.Exploited()
	switch {
	case item == nil && n > 0:
		return fmt.Sprintf("Exploited now: %s · %s", Pluralize(n, "finding"), title)
	case item == nil:
		return title
	}
	what := "no fix yet"
	if item.FixedIn != "" {
		what = fmt.Sprintf("update %s to %s", text.Truncate(item.Package, maxTitlePackage), text.Truncate(strings.ReplaceAll(item.FixedIn, ", ", " or "), maxTitleVersion))
	}
	more := ""
	if n > 1 {
		more = fmt.Sprintf(", and %d more exploited", n-1)
	}
	image := FamiliarName(section.Repository)
	if len(image) > maxTitleImage {
		// The end tells images apart.
		image = text.Truncate("…"+image[max(0, strings.LastIndex(image, "/")):], maxTitleImage)
	}
	return fmt.Sprintf("Exploited now: %s in %s%s: %s%s · %s", text.Truncate(item.ID, maxTitleID), image, m.runsIn(*section), what, more, m.where())
}

// Exploited returns the worst finding of a message of changes that is known to be exploited, with its section; nil if no listed one is. One that is fixed
// does not count.
func (m Message) Exploited() (section *Section, item *Item) {
	for s := range m.Sections {
		for i := range m.Sections[s].Items {
			candidate := &m.Sections[s].Items[i]
			if !candidate.KnownExploited || candidate.Change == diff.ChangeFixed {
				continue
			}
			if item == nil || candidate.Severity > item.Severity {
				section, item = &m.Sections[s], candidate
			}
		}
	}
	return section, item
}

// runsIn returns a workload of a section, rather one that runs all the time, and the number of the others, such as " (Deployment web and 4 more)".
func (m Message) runsIn(s Section) string {
	if len(s.Workloads) == 0 {
		return ""
	}
	first := max(0, slices.IndexFunc(s.Workloads, func(w string) bool { return !strings.HasPrefix(w, "CronJob ") && !strings.HasPrefix(w, "Job ") }))
	name := text.Truncate(strings.Replace(s.Workloads[first], " "+m.Namespace+"/", " ", 1), maxTitleWorkload)
	if more := len(s.Workloads) - 1 + max(0, s.MoreWorkloads); more > 0 {
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
