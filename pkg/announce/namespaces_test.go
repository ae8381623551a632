package announce

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// cluster is a model of namespaces that a ClusterScanner covers or not, with one receiver.
type cluster struct {
	rt     *rapid.T
	store  *store.Store
	now    time.Time
	random *rand.ChaCha8
	// covered has the namespaces that the ClusterScanner covers. versions has the version of each repository that each namespace runs.
	covered  map[string]bool
	versions map[string]map[string]int
	// recorded has the images that the store has for each covered namespace: those that it runs, and those that rollouts have replaced.
	recorded map[string]map[clusterImage]bool
	// scanned has the versions of repositories with a report.
	scanned map[string]bool
	// announced has the findings that the receiver was notified of as present. released are those of them that are not fixed although nothing
	// covered has them.
	announced, released map[string]bool
	// releasedFrom has the namespace that left with a finding. fixedAway are findings that were released and were missing when that namespace was
	// back: they are fixed without a message.
	releasedFrom map[string]string
	fixedAway    map[string]bool
}

const (
	clusterRepositories = 3
	clusterVersions     = 3
)

var clusterNamespaces = []string{"bank", "blog", "shop"}

// findingsIn returns the IDs of the findings that a version of a repository has. Each version fixes one and brings one.
func findingsIn(repository string, version int) (ids []string) {
	for n := range 3 {
		ids = append(ids, fmt.Sprintf("CVE-2026-%s%03d", strings.TrimPrefix(repository, "app"), version+n))
	}
	return ids
}

// clusterImage is a version of a repository.
type clusterImage struct {
	repository string
	version    int
}

func clusterKey(repository string, version int) image.Key {
	return image.Key{Digest: digestOf(fmt.Sprint(repository, version)), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func (c *cluster) must(err error) {
	if err != nil {
		c.rt.Fatal(err)
	}
}

// use records in the store what a covered namespace runs.
func (c *cluster) use(namespace, repository string, version int, runs bool) {
	usage := store.ImageUsage{
		Scanner: scannerUID, Cluster: true, Namespace: namespace, Key: clusterKey(repository, version), Engine: grype,
	}
	if runs {
		usage.Workloads = []store.Workload{{
			Namespace: namespace, Kind: "Deployment", Name: repository, Container: "c", Repository: repository,
			Reference: fmt.Sprintf("%s:%d", repository, version),
		}}
	}
	c.must(c.store.SetUsage(context.Background(), usage))
	if c.recorded[namespace] == nil {
		c.recorded[namespace] = map[clusterImage]bool{}
	}
	c.recorded[namespace][clusterImage{repository, version}] = true
}

// join makes the ClusterScanner cover a namespace.
func (c *cluster) join(namespace string) {
	c.covered[namespace] = true
	for repository, version := range c.versions[namespace] {
		c.use(namespace, repository, version, true)
	}
}

// leave ends that: its label changed, or it got a Scanner of its own.
func (c *cluster) leave(namespace string) {
	delete(c.covered, namespace)
	for img := range c.recorded[namespace] {
		key := clusterKey(img.repository, img.version)
		c.must(c.store.ReleaseImage(context.Background(), store.ScannerImage{Scanner: scannerUID, Namespace: namespace, Key: key}, true))
	}
	after := c.present()
	for img := range c.recorded[namespace] {
		for _, id := range c.foundIn(img) {
			if key := img.repository + " " + id; c.announced[key] && !after[key] && !c.released[key] {
				c.released[key], c.releasedFrom[key] = true, namespace
			}
		}
	}
	delete(c.recorded, namespace)
}

// rollOut makes a namespace run another version of a repository. The image that it ran before is still known for a while.
func (c *cluster) rollOut(namespace, repository string, version int) {
	before, runs := c.versions[namespace][repository]
	if runs && before == version {
		return
	}
	c.versions[namespace][repository] = version
	if !c.covered[namespace] {
		return
	}
	c.use(namespace, repository, version, true)
	if runs {
		c.use(namespace, repository, before, false)
	}
}

// scan saves a report of a version of a repository.
func (c *cluster) scan(repository string, version int) {
	name := fmt.Sprint(repository, version)
	if c.scanned[name] {
		return
	}
	c.scanned[name] = true
	c.must(c.store.SaveCatalog(context.Background(), store.Catalog{
		Engine: grype, Key: clusterKey(repository, version), PlatformDigest: digestOf("platform " + name), CatalogedAt: c.now,
	}, nil))
	var findings []finding.Finding
	for _, id := range findingsIn(repository, version) {
		findings = append(findings, finding.Finding{
			ID: id, Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}, FixVersions: []string{"2"}, FixState: finding.FixStateFixed,
		})
	}
	_, err := c.store.SaveReport(context.Background(), store.Report{
		Subject: store.Subject{PlatformDigest: digestOf("platform " + name), Engine: grype}, DataVersion: "1", MatchedAt: c.now, Findings: findings,
	}, "")
	c.must(err)
}

// foundIn returns the IDs of the findings in the report of an image; none without a report.
func (c *cluster) foundIn(img clusterImage) []string {
	if !c.scanned[fmt.Sprint(img.repository, img.version)] {
		return nil
	}
	return findingsIn(img.repository, img.version)
}

// present returns what the covered namespaces have, as far as it is scanned, as repository and ID.
func (c *cluster) present() map[string]bool {
	present := map[string]bool{}
	for namespace := range c.covered {
		for repository, version := range c.versions[namespace] {
			for _, id := range c.foundIn(clusterImage{repository, version}) {
				present[repository+" "+id] = true
			}
		}
	}
	return present
}

func (c *cluster) coverage() Coverage {
	coverage := Coverage{DataSince: noon.Add(-time.Hour)}
	images := map[string]Image{}
	for _, namespace := range clusterNamespaces {
		if !c.covered[namespace] {
			continue
		}
		complete := true
		for repository, version := range c.versions[namespace] {
			img := Image{Key: clusterKey(repository, version).String(), Repositories: []string{repository}, State: image.Scanned, Current: true}
			if !c.scanned[fmt.Sprint(repository, version)] {
				img.State, complete = image.Pending, false
			}
			img.Namespaces = slices.Concat(images[img.Key].Namespaces, []string{namespace})
			images[img.Key] = img
		}
		coverage.Namespaces = append(coverage.Namespaces, Namespace{Name: namespace, Complete: complete, Empty: len(c.versions[namespace]) == 0})
	}
	for _, key := range slices.Sorted(maps.Keys(images)) {
		coverage.Images = append(coverage.Images, images[key])
	}
	return coverage
}

// Send implements Sender. It checks what the message says.
func (c *cluster) Send(context.Context, Delivery) Outcome { return Outcome{Result: Delivered} }

// dispatch lets time pass and dispatches until nothing is due. It checks each record that a message makes.
func (c *cluster) dispatch() {
	settings := Settings{
		Scanner: "platform", Receiver: "security", Generation: 1, GroupWait: time.Second, GroupInterval: time.Second, FirstScan: FirstScanSummary,
		Address: ReceiverRef{Type: ReceiverTypeSlack, Namespace: "system", SecretName: "slack", SecretKey: "url"},
		Filter: store.ChangeFilter{
			MinSeverity: finding.High, Engine: grype,
			Changes: []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed},
		},
	}
	present := c.present()
	maps.DeleteFunc(c.released, func(key string, _ bool) bool { return present[key] })
	for key := range c.released {
		from := c.releasedFrom[key]
		if _, runs := c.versions[from][strings.Fields(key)[0]]; c.covered[from] && runs && !present[key] && c.isComplete(strings.Fields(key)[0]) {
			c.fixedAway[key] = true
		}
	}
	dispatcher := Dispatcher{Store: checkingStore{c.store, c}, Sender: c, Now: func() time.Time { return c.now }, Random: c.random}
	for range 6 {
		_, err := dispatcher.Dispatch(context.Background(), scannerUID, settings, c.coverage())
		c.must(err)
		c.now = c.now.Add(2 * time.Second)
	}
}

// checkingStore checks each announcement that is recorded with a message.
type checkingStore struct {
	*store.Store
	c *cluster
}

func (s checkingStore) RecordAnnouncement(ctx context.Context, scanner, receiver string, a store.Announcement) error {
	s.check(a)
	return s.Store.RecordAnnouncement(ctx, scanner, receiver, a)
}

func (s checkingStore) check(a store.Announcement) {
	present := s.c.present()
	if a.Snapshot != nil {
		for key := range present {
			s.c.announced[key] = true
		}
	}
	for _, f := range a.Findings {
		key := f.Repository + " " + f.ID
		switch f.Change {
		case diff.ChangeFixed:
			if !s.c.announced[key] || present[key] || s.c.released[key] {
				s.c.rt.Fatalf("%s is announced as fixed; announced %t, present %t, released %t", key, s.c.announced[key], present[key], s.c.released[key])
			}
			delete(s.c.announced, key)
		case diff.ChangeNew, diff.ChangeRegressed:
			if f.Change == diff.ChangeRegressed && s.c.fixedAway[key] {
				delete(s.c.announced, key)
			}
			delete(s.c.fixedAway, key)
			if s.c.announced[key] || !present[key] {
				s.c.rt.Fatalf("%s is announced as %s; announced %t, present %t", key, f.Change, s.c.announced[key], present[key])
			}
			s.c.announced[key] = true
		default:
			s.c.rt.Fatalf("%s is announced as %s", key, f.Change)
		}
	}
}

// TestNamespacesJoinAndLeave: whatever namespaces join and leave a ClusterScanner's coverage, no finding is announced twice, none as fixed because
// its namespace left, and none is lost.
func TestNamespacesJoinAndLeave(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &cluster{
			rt: rt, now: noon, random: rand.NewChaCha8([32]byte{1}), covered: map[string]bool{}, versions: map[string]map[string]int{}, recorded: map[string]map[clusterImage]bool{},
			scanned: map[string]bool{}, announced: map[string]bool{}, released: map[string]bool{}, releasedFrom: map[string]string{}, fixedAway: map[string]bool{},
		}
		var err error
		c.store, err = storetest.Open(context.Background(), filepath.Join(t.TempDir(), fmt.Sprint(rapid.Uint64().Draw(rt, "file"))), func() time.Time { return c.now }, store.OpenSQLite)
		c.must(err)
		defer c.store.Close()
		for _, namespace := range clusterNamespaces {
			c.versions[namespace] = map[string]int{}
		}
		namespace := rapid.SampledFrom(clusterNamespaces)
		repository := rapid.Custom(func(rt *rapid.T) string {
			return fmt.Sprintf("app%d", rapid.IntRange(1, clusterRepositories).Draw(rt, "repository"))
		})
		version := rapid.IntRange(1, clusterVersions)
		settle := func() {
			for namespace := range c.covered {
				for repository, version := range c.versions[namespace] {
					c.scan(repository, version)
				}
			}
			c.dispatch()
			present := c.present()
			for key := range present {
				if !c.announced[key] {
					rt.Fatalf("%s is present and was never announced", key)
				}
				if c.fixedAway[key] {
					rt.Fatalf("%s was fixed while its namespace was away, and is back without a message", key)
				}
			}
			for key := range c.announced {
				if !present[key] && !c.released[key] && c.runs(strings.Fields(key)[0]) {
					rt.Fatalf("%s is gone from what is covered, and was not announced as fixed", key)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"join": func(rt *rapid.T) {
				if n := namespace.Draw(rt, "namespace"); !c.covered[n] {
					c.join(n)
				}
			},
			"leave": func(rt *rapid.T) {
				if n := namespace.Draw(rt, "namespace"); c.covered[n] {
					c.leave(n)
				}
			},
			"flap": func(rt *rapid.T) {
				settle()
				for n := range maps.Clone(c.covered) {
					c.leave(n)
					c.join(n)
				}
			},
			"roll out": func(rt *rapid.T) {
				c.rollOut(namespace.Draw(rt, "namespace"), repository.Draw(rt, "repository"), version.Draw(rt, "version"))
			},
			"scan":     func(rt *rapid.T) { c.scan(repository.Draw(rt, "repository"), version.Draw(rt, "version")) },
			"dispatch": func(*rapid.T) { c.dispatch() },
			"settle":   func(*rapid.T) { settle() },
		})
		settle()
	})
}

// isComplete reports whether each version of a repository that a covered namespace runs is scanned.
func (c *cluster) isComplete(repository string) bool {
	for namespace := range c.covered {
		if version, runs := c.versions[namespace][repository]; runs && !c.scanned[fmt.Sprint(repository, version)] {
			return false
		}
	}
	return true
}

// runs reports whether a covered namespace runs a repository.
func (c *cluster) runs(repository string) bool {
	for namespace := range c.covered {
		if _, runs := c.versions[namespace][repository]; runs {
			return true
		}
	}
	return false
}

// runsIn makes a namespace run the image of a repository with n critical findings.
func (s *scenario) runsIn(namespace, repository string, n int) {
	s.t.Helper()
	s.addFindings(repository, finding.Critical, 1, n)
	s.setUsed(repository, store.Workload{
		Namespace: namespace, Kind: "Deployment", Name: repository, Container: "c", Repository: repository, Reference: repository + ":1.0",
	})
	for i, img := range s.coverage.Images {
		if slices.Contains(img.Repositories, repository) {
			s.coverage.Images[i].Namespaces = []string{namespace}
		}
	}
}

// TestHeldNamespaceDelaysNoOther: while a namespace waits for results, its findings do not take the room of other namespaces' findings, however
// many it has, and its images do not count as images without findings.
func TestHeldNamespaceDelaysNoOther(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Namespace = ""
	s.settings.Filter.Changes = append(s.settings.Filter.Changes, diff.ChangeNew, diff.ChangeNewImage)
	s.coverage.Namespaces = []Namespace{{Name: "shop", Complete: true}}
	s.dispatch()
	s.runsIn("blog", "api", maxChanges+1)
	s.coverage.Namespaces = []Namespace{{Name: "blog"}, {Name: "shop", Complete: true}}
	s.dispatch()
	s.runsIn("shop", "web", 1)
	s.dispatch()
	s.pass(time.Minute)
	s.dispatch()
	s.pass(10 * time.Minute)
	s.dispatch()
	if len(s.sent) != 1 || s.sent[0].Totals.Total() != 1 || len(s.sent[0].NewImages) != 0 || s.isKnown("api") {
		t.Errorf("%d messages, the repository of the held namespace is known: %t; want 1 about the finding in web", len(s.sent), s.isKnown("api"))
		for _, m := range s.sent {
			t.Logf("%s; new images %q", m.Title(), m.NewImages)
		}
	}
}

// TestEmptyNamespaceChangesNoState: a namespace that never ran an image is still a new one when its first image comes. Until then, plans leave
// the state as it is.
func TestEmptyNamespaceChangesNoState(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Namespace = ""
	s.coverage.Namespaces = []Namespace{{Name: "empty", Complete: true, Empty: true}, {Name: "shop", Complete: true}}
	s.dispatch()
	s.pass(time.Minute)
	s.dispatch() // shop is known now
	before := s.encoded()
	s.pass(time.Hour)
	s.dispatch()
	if after := s.encoded(); !bytes.Equal(before, after) {
		t.Errorf("the state is %s, want %s as before", after, before)
	}
	s.runsIn("empty", "api", 1)
	s.coverage.Namespaces[0].Empty = false
	for range 3 {
		s.dispatch()
		s.pass(time.Minute)
	}
	if len(s.sent) != 1 || len(s.sent[0].JoinedNamespaces) != 1 {
		t.Errorf("%d messages, want 1 about the namespace as a whole", len(s.sent))
	}
}

// TestJoinedNamespaceIsOneSection: the findings of a namespace that joins wait until its images have results, and are then one section of one
// message.
func TestJoinedNamespaceIsOneSection(t *testing.T) {
	s := newScenario(t)
	s.settings.Namespace, s.settings.Scanner = "", "platform"
	s.coverage.Namespaces = []Namespace{{Name: "bank", Complete: true}, {Name: "shop", Complete: true}}
	s.runsIn("shop", "web", 1)
	s.runsIn("bank", "ledger", 3)
	s.dispatch()
	s.pass(30 * time.Second)
	s.dispatch()
	if len(s.sent) != 1 {
		t.Fatalf("%d messages, want one first summary", len(s.sent))
	}
	first := s.sent[0]
	if first.ScannerKind != ClusterScannerKind || len(first.Namespaces) != 2 || first.Namespaces[0].Namespace != "bank" || first.Namespaces[0].Totals.Critical != 3 ||
		len(first.Namespaces[0].Actions) != 1 || first.Namespaces[0].Actions[0].Repository != "ledger" {
		t.Errorf("summary of a %s with the namespaces %+v, want bank with 3 critical findings and an update of ledger before shop", first.ScannerKind, first.Namespaces)
	}
	s.runsIn("blog", "api", 2)
	s.runsIn("blog", "db", 2)
	s.coverage.Namespaces = []Namespace{{Name: "bank", Complete: true}, {Name: "blog"}, {Name: "shop", Complete: true}}
	s.pass(10 * time.Minute)
	s.dispatch()
	s.pass(10 * time.Minute)
	s.dispatch()
	if len(s.sent) != 1 {
		t.Fatalf("%d messages while the namespace waits for results, want none after the summary", len(s.sent)-1)
	}
	s.coverage.Namespaces[1].Complete = true
	s.dispatch()
	s.pass(10 * time.Minute)
	s.dispatch()
	if len(s.sent) != 2 {
		t.Fatalf("%d messages about the namespace, want 1", len(s.sent)-1)
	}
	joined := s.sent[1]
	if len(joined.Sections) != 0 || len(joined.JoinedNamespaces) != 1 || joined.JoinedNamespaces[0].Namespace != "blog" || joined.JoinedNamespaces[0].Images != 2 ||
		joined.JoinedNamespaces[0].Totals.Critical != 4 || joined.Totals.Critical != 4 {
		t.Errorf("message with %d sections and %+v, want one section about blog, with 2 images and 4 critical findings", len(joined.Sections), joined.JoinedNamespaces)
	}
	s.pass(time.Hour)
	s.dispatch()
	if n := s.notAnnounced(); len(s.sent) != 2 || n != 0 {
		t.Errorf("%d messages and %d findings that were not announced, want nothing more", len(s.sent), n)
	}
}

// TestNamespaceJoinsBeforeDelivery: a namespace that joins while the first summary is not delivered is not part of it, and has a section of its own.
func TestNamespaceJoinsBeforeDelivery(t *testing.T) {
	s := newScenario(t)
	s.settings.Namespace, s.settings.Scanner = "", "platform"
	s.coverage.Namespaces = []Namespace{{Name: "shop", Complete: true}}
	s.runsIn("shop", "web", 1)
	s.outcomes = []Outcome{{Result: Temporary}, {Result: Temporary}}
	s.dispatch()
	s.pass(30 * time.Second)
	s.dispatch()
	s.runsIn("blog", "api", 2)
	s.coverage.Namespaces = []Namespace{{Name: "blog", Complete: true}, {Name: "shop", Complete: true}}
	for range 7 {
		s.pass(10 * time.Minute)
		s.dispatch()
	}
	if len(s.sent) != 4 || s.sent[2].Kind != KindFirstScan || len(s.sent[3].JoinedNamespaces) != 1 || len(s.sent[3].Sections) != 0 {
		t.Fatalf("%d attempts, want three for the summary and then one for the namespace that joined", len(s.sent))
	}
}

// TestJoiningNamespaceDoesNotWaitForEver: a namespace with an image that never gets a result is announced after baselineTimeout.
func TestJoiningNamespaceDoesNotWaitForEver(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Namespace = ""
	s.coverage.Namespaces = []Namespace{{Name: "shop", Complete: true}}
	s.dispatch()
	s.runsIn("blog", "api", 2)
	s.coverage.Namespaces = []Namespace{{Name: "blog"}, {Name: "shop", Complete: true}}
	s.dispatch()
	s.pass(baselineTimeout)
	s.dispatch()
	s.pass(time.Minute)
	s.dispatch()
	if len(s.sent) != 1 || len(s.sent[0].JoinedNamespaces) != 1 {
		t.Errorf("%d messages, want 1 about the namespace", len(s.sent))
	}
}

// TestManyJoinedNamespaces: a message names five of the namespaces that join, and counts the others with their findings in the totals. Later
// messages do not repeat them.
func TestManyJoinedNamespaces(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Namespace = ""
	s.coverage.Namespaces = []Namespace{{Name: "shop", Complete: true}}
	s.dispatch()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		s.runsIn(name, "app-"+name, 2)
		s.coverage.Namespaces = append(s.coverage.Namespaces, Namespace{Name: name, Complete: true})
	}
	s.dispatch()
	s.pass(time.Hour)
	s.dispatch()
	s.pass(time.Hour)
	s.dispatch()
	if len(s.sent) != 1 {
		t.Fatalf("%d messages, want 1", len(s.sent))
	}
	m := s.sent[0]
	if len(m.JoinedNamespaces) != maxNamespaces || m.MoreJoinedNamespaces != 2 || m.Totals.Total() != 14 || m.Rest.Findings+m.Rest.Images != 0 {
		t.Errorf("%d namespaces and %d more with %d findings, and %+v; want 5 and 2 more with 14 findings, and nothing beside them",
			len(m.JoinedNamespaces), m.MoreJoinedNamespaces, m.Totals.Total(), m.Rest)
	}
}

// TestRejoinedNamespaceHasKnownFindings: when a namespace that left is covered again, a fix for a finding that was announced before is an ordinary
// change, and a reply with the Slack app. Only a finding that is new is in the section about the namespace.
func TestRejoinedNamespaceHasKnownFindings(t *testing.T) {
	for name, app := range map[string]bool{"webhook": false, "app": true} {
		t.Run(name, func(t *testing.T) {
			s := afterBaseline(t, "web")
			s.settings.Namespace, s.settings.Scanner = "", "platform"
			if app {
				s.asApp()
			}
			uses := func() {
				s.setUsed("api", store.Workload{Namespace: "blog", Kind: "Deployment", Name: "api", Container: "c", Repository: "api", Reference: "api:1.0"})
			}
			repeat := func() {
				for range 5 {
					s.dispatch()
					s.pass(10 * time.Minute)
				}
			}
			s.coverage.Namespaces = []Namespace{{Name: "blog", Complete: true}, {Name: "shop", Complete: true}}
			s.addFindings("api", finding.Critical, 1, 1, withoutFix)
			uses()
			repeat()
			if len(s.sent) != 1 || len(s.sent[0].JoinedNamespaces) != 1 {
				t.Fatalf("%d messages, want 1 about the namespace that joined", len(s.sent))
			}
			all := s.coverage
			s.coverage.Namespaces = all.Namespaces[1:]
			repeat()
			s.coverage = all
			s.addFindings("api", finding.Critical, 1, 2)
			uses()
			repeat()
			var joined, changed []Item
			for i, m := range s.sent[1:] {
				for _, section := range m.Sections {
					changed = append(changed, section.Items...)
					if isThread := s.threads[1+i] != ""; isThread != app {
						t.Errorf("the fix is a reply: %t, want %t", isThread, app)
					}
				}
				for _, namespace := range m.JoinedNamespaces {
					joined = append(joined, make([]Item, namespace.Totals.Total())...)
				}
			}
			if len(joined) != 1 || len(changed) != 1 || changed[0].Change != diff.ChangeFixAvailable {
				t.Errorf("%d findings in the first scan of the namespace and the changes %+v, want the new one and the one with a fix", len(joined), changed)
			}
		})
	}
}

// runIn records that a namespace of a ClusterScanner runs the image of a repository.
func (s *scenario) runIn(namespace, repository string) {
	s.t.Helper()
	if _, err := s.store.Catalog(context.Background(), grype, keyOf(repository), store.Cluster); err != nil {
		s.must(s.store.SaveCatalog(context.Background(), store.Catalog{Engine: grype, Key: keyOf(repository), PlatformDigest: digestOf(repository), CatalogedAt: s.now}, nil))
	}
	s.must(s.store.SetUsage(context.Background(), store.ImageUsage{
		Scanner: scannerUID, Cluster: true, Namespace: namespace, Key: keyOf(repository), Engine: grype,
		Workloads: []store.Workload{{Namespace: namespace, Kind: "Deployment", Name: "app", Container: "c", Repository: repository, Reference: repository + ":1.0"}},
	}))
}

// ofCluster makes the scanner a ClusterScanner of some namespaces.
func (s *scenario) ofCluster(namespaces ...string) {
	s.settings.Namespace, s.settings.Filter.Route = "", &store.Route{All: true, Namespaces: map[string]bool{}}
	for _, n := range namespaces {
		s.settings.Filter.Route.Namespaces[n] = true
		s.coverage.Namespaces = append(s.coverage.Namespaces, Namespace{Name: n, Complete: true})
	}
}

// exceptedInBlog returns a scenario of a ClusterScanner whose image runs in blog and shop. An exception of blog suppresses its only finding there.
func exceptedInBlog(t *testing.T) *scenario {
	s := newScenario(t)
	s.ofCluster("blog", "shop")
	s.settings.Filter.Exceptions = exception.NewSet([]exception.Exception{
		{UID: "x", Namespace: "blog", Name: "accepted", Status: "not_affected", Vulnerabilities: []string{"CVE-2026-0001"}},
	}, s.now)
	s.findings["web"] = []finding.Finding{{ID: "CVE-2026-0001", Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}}}
	s.runIn("blog", "web")
	s.runIn("shop", "web")
	s.report("web")
	s.coverage.Images = []Image{{Key: "web", Repositories: []string{"web"}, Namespaces: []string{"blog", "shop"}, State: image.Scanned, Current: true}}
	return s
}

// TestMessageAndExceptionOfOneNamespace: a message names only workloads for which no exception of their namespace suppresses the finding.
func TestMessageAndExceptionOfOneNamespace(t *testing.T) {
	s := exceptedInBlog(t)
	s.settings.FirstScan = FirstScanAll
	s.dispatch()
	s.pass(time.Minute)
	s.dispatch()
	m := single(t, s.sent)
	if got := m.Sections[0].Workloads; !slices.Equal(got, []string{"Deployment shop/app"}) {
		t.Errorf("the message names %v, want only shop's: blog's exception suppresses it there", got)
	}
}

// sentAlerts keeps the alerts of the last delivery.
type sentAlerts struct{ last *Alerts }

func (a *sentAlerts) Send(_ context.Context, d Delivery) Outcome {
	a.last = d.Alerts
	return Outcome{Result: Delivered}
}

// TestAlertsAndExceptionOfOneNamespace: an alert fires only for workloads for which no exception of their namespace suppresses the finding.
func TestAlertsAndExceptionOfOneNamespace(t *testing.T) {
	s := exceptedInBlog(t)
	s.settings.Address.Type = ReceiverTypeAlertmanager
	sender := &sentAlerts{}
	d := Dispatcher{Store: s.store, Sender: sender, Random: s.random, Now: func() time.Time { return s.now }}
	_, err := d.Dispatch(t.Context(), scannerUID, s.settings, s.coverage)
	s.must(err)
	if alerts := sender.last.List; len(alerts) != 1 || alerts[0].Namespace != "shop" {
		t.Errorf("alerts %+v, want one of shop", alerts)
	}
}

// TestJoinWithTheSameImage: namespaces that join at once are each named, also when they run the same image.
func TestJoinWithTheSameImage(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanSilent
	s.ofCluster("blog")
	s.findings["web"] = nil
	s.runIn("blog", "web")
	s.report("web")
	s.coverage.Images = []Image{{Key: "web", Repositories: []string{"web"}, Namespaces: []string{"blog"}, State: image.Scanned, Current: true}}
	s.dispatch()
	s.pass(time.Hour)
	s.dispatch()
	s.ofCluster("kitchen", "shop")
	s.settings.Filter.Route.Namespaces["blog"] = true
	s.findings["api"] = []finding.Finding{{ID: "CVE-2026-0001", Severity: finding.Critical, Package: finding.Package{Name: "lib", Version: "1", Type: "deb"}}}
	s.runIn("kitchen", "api")
	s.runIn("shop", "api")
	s.report("api")
	s.coverage.Images = append(s.coverage.Images, Image{Key: "api", Repositories: []string{"api"}, Namespaces: []string{"kitchen", "shop"}, State: image.Scanned, Current: true})
	s.visit(s.now.Add(time.Hour))
	m := single(t, s.sent)
	var names []string
	for _, joined := range m.JoinedNamespaces {
		names = append(names, fmt.Sprint(joined.Namespace, " ", joined.Totals.Total()))
	}
	if !slices.Equal(names, []string{"kitchen 1", "shop 1"}) || m.Totals.Total() != 1 || len(s.state().Joining) != 0 {
		t.Errorf("%v joined with %d findings in all, want kitchen and shop with the same one", names, m.Totals.Total())
	}
}
