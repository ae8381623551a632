package clair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// TestFirstScan: an image is resolved, indexed once, and gets Clair's report.
func TestFirstScan(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"), files("top"))))
	w.scan(shop, img)
	w.Expect(w.findings(shop, img)).To(Equal([]string{"CVE-2099-0001"}))
	w.Expect(w.clair.posts).To(HaveLen(1))
	w.Expect(w.clair.posts[0].Layers).To(HaveLen(2))
	cataloged, err := w.store.Catalog(t.Context(), w.For(shop).Engine(), img.Key, store.Cluster)
	w.must(err)
	w.Expect(cataloged.Packages).To(Equal(2))
	w.Expect(cataloged.Distro).To(Equal("Debian GNU/Linux 12"))
	w.Eventually(w.wokenDigests).Should(ContainElement(img.Key.Digest))
}

// TestSharedImage: an image is sent to Clair once, regardless of how many Scanners, namespaces and credentials it has.
func TestSharedImage(t *testing.T) {
	w := newWorld(t)
	digest := w.push("web", registrytest.Image(t, files("base")))
	shop, blog := w.scanner("shop"), w.scanner("blog")
	w.secret("blog", "pull", map[string]string{".dockerconfigjson": `{"auths":{"registry.example.com":{"username":"u","password":"p"}}}`})
	images := map[*v1alpha1.Scanner][]backend.Image{
		shop: {w.run(shop, "web", digest)},
		blog: {w.run(blog, "web", digest, withPullSecrets("pull"))},
	}
	for scanner, all := range images {
		for _, img := range all {
			w.scan(scanner, img)
		}
	}
	w.Expect(w.clair.posted()).To(Equal(1))
}

// TestRescan: a requested rescan of an image has Clair index it again, whatever catalogs there are, and once.
func TestRescan(t *testing.T) {
	w := newWorld(t)
	digest := w.push("web", registrytest.Image(t, files("base")))
	shop, blog := w.scanner("shop"), w.scanner("blog")
	w.secret("blog", "pull", map[string]string{".dockerconfigjson": `{"auths":{"registry.example.com":{"username":"u","password":"p"}}}`})
	images := map[*v1alpha1.Scanner]backend.Image{shop: w.run(shop, "web", digest), blog: w.run(blog, "web", digest, withPullSecrets("pull"))}
	w.scan(shop, images[shop])
	for posted, scanner := range []*v1alpha1.Scanner{shop, shop, blog} {
		img := images[scanner]
		w.scan(scanner, img)
		w.Expect(w.clair.posted()).To(Equal(posted + 1))
		w.clock.Step(store.RescanInterval)
		before, err := w.store.Catalog(t.Context(), w.For(scanner).Engine(), img.Key, img.Scope)
		w.must(err)
		w.must(w.store.RequestRescan(t.Context(), img.OfScanner()))
		w.scan(scanner, img)
		w.Expect(w.clair.posted()).To(Equal(posted + 2))
		after, err := w.store.Catalog(t.Context(), w.For(scanner).Engine(), img.Key, img.Scope)
		w.must(err)
		w.Expect(after.CatalogedAt).To(BeTemporally(">", before.CatalogedAt))
	}
}

// TestRestart: indexed images stay known after a restart.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	w.start()
	w.Expect(w.step(shop, img)).To(Equal("scanned"))
	w.Eventually(func() error { _, err := w.For(shop).(*Backend).DataVersion(t.Context()); return err }).Should(Succeed())
	w.Expect(w.clair.posted()).To(Equal(1))
	w.Expect(w.clair.reports).To(HaveLen(1))
}

// TestIndexerChanges: when Clair's indexer changes, images are indexed again and keep their results in the meantime.
func TestIndexerChanges(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	w.mu.Lock()
	w.woken = nil // before the change, which may be noticed at once
	w.mu.Unlock()
	w.clair.change(func() { w.clair.state = "state-2"; w.clair.advisories = []string{"CVE-2099-0002"} })
	w.Eventually(func() []string {
		w.advance(time.Minute)
		w.For(shop) // a Scanner that is not reconciled is dropped
		return w.wokenDigests()
	}).Should(ContainElement(img.Key.Digest))
	w.Expect(w.step(shop, img)).To(Equal("scanned"), "the old result stands, and the image waits to be indexed")
	w.Eventually(func() []string { return w.findings(shop, img) }).Should(Equal([]string{"CVE-2099-0002"}))
	w.Eventually(func() string {
		cataloged, _ := w.store.Catalog(t.Context(), w.For(shop).Engine(), img.Key, store.Cluster)
		return cataloged.Tool
	}).Should(Equal("clair state-2"))
	w.Expect(w.step(shop, img)).To(Equal("scanned"))
	w.Expect(w.clair.posted()).To(Equal(2))
}

// TestOutdatedImagesAfterStoreError: an image whose catalog cannot be read when the indexer has changed is woken once the store can be read.
func TestOutdatedImagesAfterStoreError(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	i := w.For(shop).(*Backend).instance
	w.stop() // the loops would wake images at any time
	w.mu.Lock()
	w.woken = nil
	w.mu.Unlock()
	w.changeStore(`ALTER TABLE catalogues RENAME TO hidden`)
	i.mu.Lock()
	i.state = "state-2"
	i.mu.Unlock()
	if err := i.wakeOutdated(t.Context()); err == nil {
		t.Error("wakeOutdated reports no error of the store")
	}
	w.Expect(w.wokenDigests()).To(BeEmpty())
	w.changeStore(`ALTER TABLE hidden RENAME TO catalogues`)
	w.must(i.wakeOutdated(t.Context()))
	w.Expect(w.wokenDigests()).To(ContainElement(img.Key.Digest))
}

// changeStore runs an SQL statement on the store's file.
func (w *world) changeStore(statement string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.storePath)
	w.must(err)
	_, err = db.ExecContext(w.t.Context(), statement)
	w.must(errors.Join(err, db.Close()))
}

// TestDataChanges: newer data causes all reports to be read again, the oldest first, and no layer to be fetched.
func TestDataChanges(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	var images []backend.Image
	for n := range 20 {
		images = append(images, w.run(shop, "web", w.push("web", registrytest.Image(t, files(fmt.Sprint(n))))))
		w.scan(shop, images[n])
		w.advance(time.Second)
	}
	before := slices.Clone(w.clair.reports)
	w.clair.change(func() { w.clair.reports = nil; w.clair.advisories = append(w.clair.advisories, "CVE-2099-0002") })
	w.clair.update("debian/updater", noon)
	w.Expect(w.For(shop).(*Backend).RequestDataPoll(t.Context())).To(Succeed())
	for _, img := range images {
		w.Eventually(func() []string { w.advance(time.Second); return w.findings(shop, img) }).Should(Equal([]string{"CVE-2099-0001", "CVE-2099-0002"}))
		w.scan(shop, img)
	}
	w.Expect(w.clair.posted()).To(Equal(20))
	w.Expect(w.clair.reports).To(HaveLen(20))
	// Two reports are read at a time, so the order within a batch is arbitrary.
	w.Expect(w.clair.reports[:leaseBatch]).To(ConsistOf(before[:leaseBatch]))
}

// TestPollRequests: a thousand hints cause one poll.
func TestPollRequests(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	w.clair.change(func() { w.clair.requests = 0 })
	for range 1000 {
		w.must(w.For(shop).(*Backend).RequestDataPoll(t.Context()))
	}
	w.clair.update("debian/updater", noon)
	w.Eventually(func() int { w.advance(minPollInterval); w.For(shop); return len(w.clair.read()) }).Should(Equal(2))
	w.clair.mu.Lock()
	defer w.clair.mu.Unlock()
	w.Expect(w.clair.requests).To(BeNumerically("<", 20))
}

// TestNotAllowed: a Clair that the operator's configuration does not list receives no request.
func TestNotAllowed(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Config.Clair.Instances = []config.ClairInstance{{URL: "https://clair.example.com"}}
	})
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	for _, ask := range []func(*v1alpha1.Scanner, backend.Image) (backend.Progress, error){w.catalog, w.match} {
		progress, err := ask(shop, img)
		w.must(err) // not an attempt of the image, which would delay the next one after the configuration is corrected
		w.Expect(progress.Reason).To(Equal("ClairNotAllowed"))
		w.Expect(progress.Message).To(And(HavePrefix("spec.backend.clair.url: "), ContainSubstring("clair.instances"), ContainSubstring("https://clair.example.com")))
		w.Expect(progress.RequeueAfter).To(BeNumerically("<=", requeueAfter))
	}
	_, err := w.For(shop).DataVersion(t.Context())
	w.Expect(err).To(MatchError(HavePrefix("ClairNotAllowed")))
	w.must(w.For(shop).(*Backend).RequestDataPoll(t.Context()))
	wait, _, err := w.For(shop).(*Backend).Release(t.Context(), "shop-uid")
	w.must(err)
	w.Expect(wait).To(BeZero())
	w.advance(time.Hour)
	w.Expect(w.clair.requests).To(BeZero())
}

// TestWrongSettings: a Scanner's invalid settings are reported to that Scanner and affect no other.
func TestWrongSettings(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		broken func(*v1alpha1.ClairBackend)
		want   string
	}{
		"wrong key": {
			change: func(w *world) { w.secret("blog", "psk", map[string]string{"key": strings.Repeat("d3Jv", 12)}) },
			broken: withSecret("psk"), want: "ClairUnauthorized: spec.backend.clair.authSecretRef (Secret psk): ",
		},
		"no key": {broken: func(*v1alpha1.ClairBackend) {}, want: "ClairUnauthorized: spec.backend.clair.authSecretRef is not set: "},
		"no Secret": {
			broken: withSecret("psk"), want: "ClairSecretMissing: spec.backend.clair.authSecretRef: there is no Secret psk in namespace blog",
		},
		"no name of a Secret": {
			change: func(w *world) { w.forbidden["x;echo evil"] = true },
			broken: withSecret("x;echo evil"), want: `ClairSecretMissing: spec.backend.clair.authSecretRef: "x;echo evil" is not a name of a Secret`,
		},
		"another Secret": {
			change: func(w *world) { w.secret("blog", "psk", map[string]string{"token": "x"}) },
			broken: withSecret("psk"), want: `ClairSecretMissing: spec.backend.clair.authSecretRef: key "key" of Secret psk in namespace blog: `,
		},
		"Secret not granted": {
			change: func(w *world) { w.forbidden["psk"] = true },
			broken: withSecret("psk"),
			want: "ClairSecretForbidden: spec.backend.clair.authSecretRef: the operator may not read the Secret; to allow it: " +
				"kubectl -n blog create role scanner-operator-manager-psk --verb=get --resource=secrets --resource-name=psk && " +
				"kubectl -n blog create rolebinding scanner-operator-manager-psk --role=scanner-operator-manager-psk --serviceaccount=scanner-operator-system:scanner-operator-manager",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.clair.key = clairsKey
			w.secret("shop", "right", map[string]string{"key": preSharedKey})
			if tt.change != nil {
				tt.change(w)
			}
			digest := w.push("web", registrytest.Image(t, files("base")))
			blog, shop := w.scanner("blog", tt.broken), w.scanner("shop", withSecret("right"))
			inBlog, inShop := w.run(blog, "own", digest), w.run(shop, "web", digest)
			_ = w.step(blog, inBlog)
			dataOfBlog := func() string { _, err := w.For(blog).DataVersion(t.Context()); return fmt.Sprint(err) }
			w.Eventually(dataOfBlog).Should(HavePrefix(tt.want))
			w.scan(shop, inShop)
			w.Expect(dataOfBlog()).To(HavePrefix(tt.want))
			other := w.run(blog, "other", w.push("other", registrytest.Image(t, files("other"))))
			w.Consistently(func() string { return w.step(blog, other) }, "100ms").Should(HavePrefix(tt.want), "nobody's credentials work for others")
			_, err := w.catalog(blog, other)
			w.must(err) // not a failure of the image
			w.Expect(w.clair.posted()).To(Equal(1))
		})
	}
}

// TestSettling: without configured updaters, data is complete once no further updater has completed for ten minutes.
func TestSettling(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Clair.Instances[0].Updaters = nil })
	w.clair.update("debian/updater", noon.Add(-10*time.Second))
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	data := func() string { _, err := w.For(shop).DataVersion(t.Context()); return fmt.Sprint(err) }
	w.Eventually(func() string { return w.step(shop, img) }).Should(HavePrefix("NoVulnerabilityData: the updaters of Clair at "))
	w.clair.update("alpine/updater", noon)
	w.Eventually(func() string { w.advance(10 * time.Second); return data() }).Should(ContainSubstring("2 so far"))
	seen := w.clock.Now()
	w.Eventually(func() string { w.advance(10 * time.Second); return data() }).Should(Equal("<nil>"))
	w.Expect(w.clock.Since(seen)).To(BeNumerically(">=", stableTime-10*time.Second))
	w.scan(shop, img)
}

// TestDatabaseLost: data of fewer updaters than before is not used, even after a restart. Existing findings stay until all updaters are
// back, or for a day.
func TestDatabaseLost(t *testing.T) {
	for name, comesBack := range map[string]bool{"filled again": true, "stays so": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *Options) { o.Config.Clair.Instances[0].Updaters = nil })
			w.clair.update("alpine/updater", noon.Add(-time.Hour))
			shop := w.scanner("shop")
			img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
			w.scan(shop, img)
			w.clair.change(func() {
				clear(w.clair.indexed)
				clear(w.clair.updaters)
				w.clair.advisories = nil
			})
			w.clair.update("alpine/updater", noon.Add(time.Second))
			data := func() string { _, err := w.For(shop).DataVersion(t.Context()); return fmt.Sprint(err) }
			lost := And(HavePrefix("NoVulnerabilityData: Clair at "), ContainSubstring("1 updaters, and had that of 2"), ContainSubstring("clair.instances[].updaters"))
			w.Eventually(func() string { w.advance(10 * time.Second); return data() }).Should(lost)
			w.start()
			w.Eventually(data).Should(lost)
			for range 23 {
				w.advance(time.Hour)
				_ = w.step(shop, img)
				w.Expect(w.findings(shop, img)).To(Equal([]string{"CVE-2099-0001"}))
			}
			want := BeEmpty()
			if comesBack {
				w.clair.update("debian/updater", noon.Add(time.Minute))
				w.clair.change(func() { w.clair.advisories = []string{"CVE-2099-0002"} })
				want = Equal([]string{"CVE-2099-0002"})
			}
			seen := w.clock.Now()
			w.Eventually(func() []string {
				w.advance(time.Minute)
				if w.step(shop, img) != "scanned" {
					return []string{"being scanned"}
				}
				return w.findings(shop, img)
			}, "30s").Should(want)
			w.Expect(data()).To(Equal("<nil>"))
			if comesBack {
				w.Expect(w.clock.Since(seen)).To(BeNumerically("<", time.Hour))
			}
		})
	}
}

// TestTwoStates: while two indexers in different states answer, images are not indexed again each time.
func TestTwoStates(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	var asked atomic.Int32
	w.clair.before = interceptOn(http.MethodGet, "/index_state", func(rw http.ResponseWriter, r *http.Request) bool {
		return respondWith(http.StatusOK, fmt.Sprintf(`{"state":"state-%d"}`, 1+asked.Add(1)%2))(rw, r)
	})
	w.Eventually(func() int32 {
		w.advance(10 * time.Second)
		w.Expect(w.step(shop, img)).To(Equal("scanned"))
		return asked.Load()
	}).Should(BeNumerically(">", 20))
	w.Expect(w.clair.posted()).To(Equal(1))
}

// TestExpectedUpdaters: data is complete when all expected updaters have completed.
func TestExpectedUpdaters(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Clair.Instances[0].Updaters = []string{"debian/*", "osv/go"} })
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.Eventually(func() string { return w.step(shop, img) }).Should(And(HavePrefix("NoVulnerabilityData: these updaters of Clair at "), HaveSuffix(": osv/go")))
	w.Expect(w.clair.reports).To(BeEmpty())
	w.clair.update("osv/go", noon)
	// The number of updaters that fit debian/* is unknown.
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(ContainSubstring("10m0s"))
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(Equal("scanned"))
}

// TestNoData: a Clair without data does not make images look clean.
func TestNoData(t *testing.T) {
	w := newWorld(t)
	clear(w.clair.updaters)
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.Eventually(func() string { return w.step(shop, img) }).Should(And(HavePrefix("NoVulnerabilityData: Clair at "), HaveSuffix(" has no vulnerability data yet")))
	w.clair.update("debian/updater", noon)
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(Equal("scanned"))
}

// TestOldData: data without additions for longer than maxAge is reported as old.
func TestOldData(t *testing.T) {
	w := newWorld(t)
	b := w.For(w.scanner("shop")).(*Backend)
	w.Expect(b.DataProblem(store.DataVersion{Built: noon.Add(-119 * time.Hour)})).To(BeEmpty())
	w.Expect(b.DataProblem(store.DataVersion{Built: noon.Add(-121 * time.Hour)})).To(ContainSubstring("clair.maxAge"))
	w.Expect(b.DataProblem(store.DataVersion{Built: noon.Add(23 * time.Hour)})).To(BeEmpty())
	w.Expect(b.DataProblem(store.DataVersion{Built: noon.Add(25 * time.Hour)})).To(ContainSubstring("set the node's clock"))
	w.Expect(b.DataProblem(store.DataVersion{})).To(BeEmpty())
}

// TestNothingToScan: an image without layers is no failure, and is not sent to Clair.
func TestNothingToScan(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := w.run(shop, "empty", w.push("empty", empty.Image))
	w.scan(shop, img)
	w.Expect(w.findings(shop, img)).To(BeEmpty())
	w.Expect(w.clair.posted()).To(BeZero())
	w.Expect(w.clair.reports).To(BeEmpty())
}

// TestUnusedManifestsAreDeleted: a manifest that no Scanner uses any more is deleted from Clair, if Clair got it from the operator.
func TestUnusedManifestsAreDeleted(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	ours := w.run(shop, "ours", w.push("ours", registrytest.Image(t, files("ours"))))
	theirs := w.run(shop, "theirs", w.push("theirs", registrytest.Image(t, files("theirs"))))
	stays := w.run(shop, "stays", w.push("stays", registrytest.Image(t, files("stays"))))
	w.clair.change(func() { w.clair.indexed[theirs.Key.Digest] = true })
	for _, img := range []backend.Image{ours, theirs, stays} {
		w.scan(shop, img)
	}
	for _, img := range []backend.Image{ours, theirs} {
		w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "shop-uid", Namespace: "shop", Key: img.Key}, false))
	}
	remembered := func() (digests []string) {
		for _, img := range []backend.Image{ours, theirs, stays} {
			if _, err := w.store.Manifest(t.Context(), w.For(shop).Engine(), img.Key.Digest); err == nil {
				digests = append(digests, img.Key.Digest)
			}
		}
		return digests
	}
	w.Eventually(func() []string { w.advance(20 * time.Second); return remembered() }).Should(Equal([]string{stays.Key.Digest}))
	w.Expect(w.clair.deleted).To(Equal([]string{ours.Key.Digest}))
	w.use(shop, ours)
	w.scan(shop, ours)
	w.Expect(w.clair.posted()).To(Equal(4))
}

// TestRelease: before a Scanner is removed, the manifests that only it uses are deleted from Clair.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	shop, blog := w.scanner("shop"), w.scanner("blog")
	both := w.push("both", registrytest.Image(t, files("both")))
	own := w.run(shop, "own", w.push("own", registrytest.Image(t, files("own"))))
	w.scan(shop, own)
	w.scan(shop, w.run(shop, "both", both))
	w.scan(blog, w.run(blog, "both", both))
	b := w.For(shop).(*Backend)
	held, err := b.Holds(t.Context(), "shop-uid")
	w.must(err)
	w.Expect(held).To(BeTrue())
	w.Eventually(func() time.Duration {
		wait, _, err := b.Release(t.Context(), "shop-uid")
		w.must(err)
		return wait
	}).Should(BeZero())
	w.Expect(w.clair.deleted).To(Equal([]string{own.Key.Digest}))
	held, err = b.Holds(t.Context(), "shop-uid")
	w.must(err)
	w.Expect(held).To(BeFalse())
}

// TestReleaseIsCancelled: when a Scanner that was being released uses a Clair again, its manifests are not deleted there.
func TestReleaseIsCancelled(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Config.Clair.Instances = append(o.Config.Clair.Instances, config.ClairInstance{URL: "https://clair.example.com"})
	})
	shop, blog := w.scanner("shop"), w.scanner("blog")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	w.stop() // so that nothing is deleted before the Scanner uses this Clair again
	left := w.For(shop).(*Backend)
	w.For(w.scanner("shop", func(c *v1alpha1.ClairBackend) { c.URL = "https://clair.example.com" }))
	_, _, err := left.Release(t.Context(), "shop-uid")
	w.must(err)
	i := left.instance
	w.Expect(i.releasingScanners()).To(ConsistOf("shop-uid"))
	w.For(blog)
	w.Expect(i.releasingScanners()).To(ConsistOf("shop-uid"), "another one says nothing about it")
	gone := w.scanner("shop")
	gone.DeletionTimestamp = &metav1.Time{Time: noon}
	w.For(gone)
	w.Expect(i.releasingScanners()).To(ConsistOf("shop-uid"), "one that is being deleted has not come back")
	w.For(shop)
	w.must(i.deleteReleased(t.Context()))
	w.Expect(i.releasingScanners()).To(BeEmpty())
	w.Expect(w.clair.deleted).To(BeEmpty())
}

// TestReportBoundOfAllInstances: the bound on reports in memory applies to all Clair instances together.
func TestReportBoundOfAllInstances(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Config.Clair.Instances = append(o.Config.Clair.Instances, config.ClairInstance{URL: "https://clair.example.com"})
	})
	here, there := w.instances[w.clair.server.URL], w.instances["https://clair.example.com"]
	for range maxReportsInMemory {
		w.must(there.acquireReportSlot(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w.Expect(here.acquireReportSlot(ctx)).To(MatchError(context.DeadlineExceeded))
	there.releaseReportSlot()
	w.must(here.acquireReportSlot(t.Context()))
}

// TestStoreBudget: a namespace whose findings use up its storage budget gets no new image indexed, and keeps those that it has. Other
// namespaces are not affected.
func TestStoreBudget(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Ingest.StoreSizePerNamespace = resource.MustParse("1Ki") })
	shop, blog := w.scanner("shop"), w.scanner("blog")
	w.clair.change(func() {
		w.clair.advisories = []string{"CVE-2099-0001", "CVE-2099-0002", "CVE-2099-0003", "CVE-2099-0004"}
	})
	first := anImage()(w, shop)
	w.scan(shop, first)
	digest := w.push("next", registrytest.Image(t, files("next")))
	next := w.run(shop, "next", digest)
	w.advance(time.Minute) // the measured usage is cached for a moment
	w.Eventually(func() string { return w.step(shop, next) }).Should(HavePrefix("StoreBudgetExceeded: "))
	w.Expect(w.clair.posted()).To(Equal(1))
	w.Expect(w.step(shop, first)).To(Equal("scanned"))
	w.scan(blog, w.run(blog, "next", digest))
	w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "shop-uid", Namespace: "shop", Key: first.Key}, false))
	w.advance(48 * time.Hour)
	_, err := w.store.Sweep(t.Context(), w.clock.Now().Add(-24*time.Hour))
	w.must(err)
	w.advance(time.Minute)
	third := w.run(shop, "third", w.push("third", registrytest.Image(t, files("third"))))
	w.Eventually(func() string { return w.step(shop, third) }).Should(Equal("scanned"), "there is room again")
}

// TestBoundedIndexing: Clair never indexes more images at once than configured, in total and for each namespace.
func TestBoundedIndexing(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Clair.MaxIndexing, o.Config.Clair.MaxIndexingPerNamespace = 3, 2 })
	w.guard = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("User-Agent") == "Go-http-client/1.1" {
			time.Sleep(20 * time.Millisecond) // so that some requests overlap
		}
		return false
	}
	scanners := []*v1alpha1.Scanner{w.scanner("shop"), w.scanner("blog")}
	var images [][]backend.Image
	for _, scanner := range scanners {
		var own []backend.Image
		for n := range 10 {
			own = append(own, w.run(scanner, "web", w.push("web", registrytest.Image(t, files(fmt.Sprint(scanner.Namespace, n))))))
			_ = w.step(scanner, own[n])
		}
		images = append(images, own)
	}
	for n, scanner := range scanners {
		for _, img := range images[n] {
			w.scan(scanner, img)
		}
	}
	w.Expect(w.clair.most).To(BeNumerically("<=", 3))
	w.Expect(w.clair.posted()).To(Equal(20))
}

// slowReader returns an object only after its caller's context was cancelled.
type slowReader struct {
	client.Reader
	stop context.CancelFunc
}

func (r slowReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	defer r.stop()
	return r.Reader.Get(ctx, key, obj, opts...)
}

// TestSecretJustInTime: a Secret that was read is used, even if the context ended meanwhile.
func TestSecretJustInTime(t *testing.T) {
	w := newWorld(t)
	w.secret("shop", "pull", map[string]string{"a": "b"})
	ctx, cancel := context.WithCancel(t.Context())
	known := secrets{reader: slowReader{w.cluster, cancel}, clock: w.clock}
	data, err := known.get(ctx, types.NamespacedName{Namespace: "shop", Name: "pull"})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(data).To(HaveKeyWithValue("a", []byte("b")))
}
