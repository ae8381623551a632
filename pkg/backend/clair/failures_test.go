package clair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// isFromClair reports whether a request for a layer comes from Clair.
func isFromClair(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("User-Agent"), "Go-http-client")
}

func respondWith(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// interceptOn limits an interception to requests with this method and path.
func interceptOn(method, path string, then func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == method && strings.Contains(r.URL.Path, path) && then(w, r)
	}
}

// TestImagesThatCannotBeFetched: a problem with an image or its registry is reported for that image, and other images are scanned.
func TestImagesThatCannotBeFetched(t *testing.T) {
	privately := func(_ *world) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if _, password, _ := r.BasicAuth(); r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "/good/") && password != "s3cret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			return false
		}
	}
	for name, tt := range map[string]struct {
		image  func(*world, *v1alpha1.Scanner) backend.Image
		guard  func(*world) func(http.ResponseWriter, *http.Request) bool
		before func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"not there": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				return w.run(s, "gone", "sha256:"+strings.Repeat("0", 64))
			},
			want: "ImageNotFound: ",
		},
		"a chart": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				return w.run(s, "chart", w.push("chart", registrytest.Chart(w.t)))
			},
			want: "NotAnImage: ",
		},
		"another platform": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				index := registrytest.Index(w.t, map[string]v1Image{"arm64": registrytest.ImageFor(w.t, "arm64", files("arm"))})
				w.registry.PushIndex(w.t, "index", index)
				return w.run(s, "index", registrytest.Digest(w.t, index))
			},
			want: "PlatformMismatch: ",
		},
		"no reference": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				return w.run(s, "", "sha256:"+strings.Repeat("0", 64), func(img *backend.Image) { img.PullReferences = nil })
			},
			want: "ImageNotFound: ",
		},
		"no pull secret": {image: anImage(), guard: privately, want: "Unauthorized: "},
		"pull secret missing": {
			image: anImage(withPullSecrets("pull")), guard: privately, want: "PullSecretMissing: ",
		},
		"pull secrets not granted": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				w.forbidden["pull-a"], w.forbidden["pull-b"] = true, true
				return anImage(withPullSecrets("pull-a", "pull-b"))(w, s)
			},
			guard: privately,
			want: "PullSecretForbidden: the operator may not read pull secrets of the image's pods; to allow it: " +
				"kubectl -n shop create role scanner-operator-manager-5924983d --verb=get --resource=secrets --resource-name=pull-a --resource-name=pull-b && ",
		},
		"ServiceAccount not granted": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				w.forbidden["web"] = true
				return anImage(withPullSecrets("pull"), withAccount)(w, s)
			},
			guard: privately,
			want: "PullSecretMissing: pull secrets that ServiceAccount web was given after the pods were made are not used, since the operator may not read it; to allow it: " +
				"kubectl -n shop create role scanner-operator-manager-serviceaccounts-web --verb=get --resource=serviceaccounts --resource-name=web && ",
		},
		"ServiceAccount of pods without pull secrets": {
			image: anImage(withAccount), guard: privately,
			want: "Unauthorized: pull secrets of ServiceAccount web in namespace shop count for pods that are made after it was given them; ",
		},
		"pull secret of no name": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				w.forbidden["x;echo evil"] = true
				return anImage(withPullSecrets("x;echo evil"))(w, s)
			},
			guard: privately, want: "PullSecretMissing: ",
		},
		"pull secret that is not read": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				w.broken["pull"] = true
				return anImage(withPullSecrets("pull"))(w, s)
			},
			want: "BackendError: cannot read pull secret pull of the image's pods: InternalError",
		},
		"ServiceAccount that is not read": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				w.broken["web"] = true
				return anImage(withPullSecrets("pull"), withAccount)(w, s)
			},
			want: "BackendError: cannot read ServiceAccount web of the image's pods: InternalError",
		},
		"a layer refused to Clair": {
			image: anImage(),
			guard: func(*world) func(http.ResponseWriter, *http.Request) bool {
				return func(w http.ResponseWriter, r *http.Request) bool {
					return isFromClair(r) && strings.Contains(r.URL.Path, "/v2/web/blobs/") && respondWith(http.StatusUnauthorized, "")(w, r)
				}
			},
			want: "Unauthorized: Clair at ",
		},
		"a layer missing": {
			image: anImage(),
			guard: func(*world) func(http.ResponseWriter, *http.Request) bool {
				return func(w http.ResponseWriter, r *http.Request) bool {
					return isFromClair(r) && strings.Contains(r.URL.Path, "/v2/web/blobs/") && respondWith(http.StatusNotFound, "")(w, r)
				}
			},
			want: "ImageNotFound: Clair at ",
		},
		"a layer elsewhere": {
			image: func(w *world, s *v1alpha1.Scanner) backend.Image {
				content, err := mutate.Append(registrytest.Image(w.t), mutate.Addendum{
					Layer: registrytest.Layer(w.t, files("base")), MediaType: types.DockerLayer, URLs: []string{"https://elsewhere.example/layer"},
				})
				w.must(err)
				return w.run(s, "web", w.push("web", content))
			},
			guard: func(w *world) func(http.ResponseWriter, *http.Request) bool {
				digest := registrytest.Digest(w.t, registrytest.Layer(w.t, files("base")))
				return interceptOn(http.MethodGet, "/v2/web/blobs/"+digest, respondWith(http.StatusNotFound, ""))
			},
			want: "ForeignLayer: ",
		},
		"Clair fails with this image": {
			image:  anImage(),
			before: interceptOn(http.MethodPost, "/index_report", respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"no idea"}`)),
			want:   "ClairIndexFailed: Clair at ",
		},
		"Clair ends without a word": {
			image: anImage(),
			before: interceptOn(http.MethodPost, "/index_report", func(w http.ResponseWriter, r *http.Request) bool {
				digest := strings.Split(fmt.Sprint(readManifest(r)), `"`)[0]
				return respondWith(http.StatusCreated, `{"manifest_hash":"`+digest+`","state":"","success":false}`)(w, r)
			}),
			want: "ClairIndexFailed: Clair at ",
		},
		"Clair's index error": {
			image: anImage(),
			before: interceptOn(http.MethodPost, "/index_report", func(w http.ResponseWriter, r *http.Request) bool {
				return respondWith(http.StatusCreated, `{"manifest_hash":"`+readManifest(r)+`","state":"IndexError","success":false,"err":"failed to scan all layer contents: no"}`)(w, r)
			}),
			want: "ClairIndexFailed: Clair at ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			shop := w.scanner("shop")
			good := w.run(shop, "good/web", w.push("good/web", registrytest.Image(t, files("good"))))
			w.scan(shop, good)
			img := tt.image(w, shop)
			if tt.guard != nil {
				w.guard = tt.guard(w)
			}
			w.clair.change(func() { w.clair.before = tt.before })
			w.Eventually(func() string { return w.step(shop, img) }).Should(HavePrefix(tt.want))
			w.Expect(w.step(shop, img)).To(HavePrefix(tt.want), "it is said as often as anybody asks, for a while")
			w.Expect(w.step(shop, img)).NotTo(ContainSubstring("s3cret"))
			_, err := w.For(shop).DataVersion(t.Context())
			w.Expect(err).NotTo(HaveOccurred(), "the engine works")
			w.Expect(w.step(shop, good)).To(Equal("scanned"))
			w.clair.change(func() { w.clair.before = nil })
			w.scan(shop, w.run(shop, "good/next", w.push("good/next", registrytest.Image(t, files("next"))))) // at once
		})
	}
}

func anImage(change ...func(*backend.Image)) func(*world, *v1alpha1.Scanner) backend.Image {
	return func(w *world, s *v1alpha1.Scanner) backend.Image {
		return w.run(s, "web", w.push("web", registrytest.Image(w.t, files("base"))), change...)
	}
}

func withAccount(img *backend.Image) { img.ServiceAccounts = []string{"web"} }

// TestClairOutage: during an outage of Clair no image fails, the Scanner reports the problem, and Clair gets few requests. Scans
// continue after it.
func TestClairOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		problem func(http.ResponseWriter, *http.Request) bool
		want    string
	}{
		"broken":         {respondWith(http.StatusInternalServerError, "no"), "ClairUnavailable: Clair at "},
		"another server": {respondWith(http.StatusOK, "<html>Welcome</html>"), "ClairUnavailable: Clair at "},
		"away":           {respondWith(http.StatusBadGateway, "<html>no upstream</html>"), "ClairUnavailable: Clair at "},
		"breaks off":     {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, "ClairUnavailable: Clair at "},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"state":`)
			panic(http.ErrAbortHandler)
		}, "ClairUnavailable: Clair at "},
		"too busy":     {respondWith(http.StatusTooManyRequests, ""), "ClairUnavailable: Clair at "},
		"unauthorized": {respondWith(http.StatusUnauthorized, ""), "ClairUnauthorized: spec.backend.clair.authSecretRef is not set"},
		"without its database": {func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.Contains(r.URL.Path, "/index_state"):
				return false
			case strings.Contains(r.URL.Path, "/index_report/"):
				return respondWith(http.StatusNotFound, `{"code":"not-found","message":"index report not found"}`)(w, r)
			}
			return respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"connection refused"}`)(w, r)
		}, "ClairUnavailable: Clair at "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			shop := w.scanner("shop")
			old := w.run(shop, "old", w.push("old", registrytest.Image(t, files("old"))))
			w.scan(shop, old)
			img := anImage()(w, shop)
			w.clair.change(func() { w.clair.before, w.clair.requests = tt.problem, 0 })
			state := func() string { _, err := w.For(shop).DataVersion(t.Context()); return fmt.Sprint(err) }
			w.Eventually(func() string { w.advance(10 * time.Second); _ = w.step(shop, img); return state() }).Should(HavePrefix(tt.want))
			w.Eventually(func() string { return w.step(shop, img) }).ShouldNot(ContainSubstring("ClairIndexFailed"))
			w.Expect(w.step(shop, old)).To(Equal("scanned"), "results stand")
			w.clair.change(func() { w.clair.requests = 0 })
			for range 60 {
				w.advance(10 * time.Second)
				_ = w.step(shop, img)
			}
			w.clair.mu.Lock()
			asked := w.clair.requests
			w.clair.mu.Unlock()
			w.Expect(asked).To(BeNumerically("<", 40), "in ten minutes")
			w.clair.change(func() { w.clair.before = nil })
			w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(Equal("scanned"))
			w.Expect(state()).To(Equal("<nil>"))
		})
	}
}

// TestRestartDuringOutage: after a restart, it is unknown whether Clair is available until it was contacted. That includes a Clair whose
// indexer alone has lost its database.
func TestRestartDuringOutage(t *testing.T) {
	for name, problem := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"away":                     respondWith(http.StatusBadGateway, "<html>no upstream</html>"),
		"breaks off":               func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"indexer without database": interceptOn(http.MethodDelete, "/index_report/", respondWith(http.StatusInternalServerError, "")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			shop := w.scanner("shop")
			w.scan(shop, w.run(shop, "web", w.push("web", registrytest.Image(t, files("base")))))
			w.clair.change(func() { w.clair.before = problem })
			w.Expect(NewEngines(w.options).For(shop).(*Backend).AvailabilityKnown()).To(BeFalse(), "before the first request")
			w.start()
			b := w.For(shop).(*Backend)
			w.Eventually(b.AvailabilityKnown).Should(BeTrue())
			_, err := b.DataVersion(t.Context())
			w.Expect(err).To(MatchError(HavePrefix("ClairUnavailable: ")))
		})
	}
}

// TestOutageDuringPoll: an outage that is recorded while the state of the indexer is fetched stays until the indexer's database answers.
func TestOutageDuringPoll(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	w.scan(shop, anImage()(w, shop))
	w.waitUntilIdle()
	i := w.instances[w.clair.server.URL]
	l := i.workingLink()
	w.clair.change(func() {
		w.clair.before = func(rw http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/index_state") {
				i.recordFailure(r.Context(), l, &api.Error{Status: http.StatusInternalServerError}) // as a probe does
			}
			return r.Method == http.MethodDelete && respondWith(http.StatusInternalServerError, "")(rw, r)
		}
	})
	w.requestPoll(shop)
	_, err := w.For(shop).DataVersion(t.Context())
	w.Expect(err).To(MatchError(HavePrefix("ClairUnavailable: ")))
}

// TestManyLostImages: a Clair that loses many images is no reason to index one of them over and over.
func TestManyLostImages(t *testing.T) {
	w := newWorld(t)
	i := w.instances[w.clair.server.URL]
	indexedAgain := func() (n int) {
		for image := range 20_000 {
			if i.lostImageWait(fmt.Sprintf("sha256:%064x", image)) == 0 {
				n++
			}
		}
		return n
	}
	w.Expect(indexedAgain()).To(Equal(20_000))
	w.clock.Step(firstRetry - time.Second)
	w.Expect(indexedAgain()).To(BeZero())
	w.clock.Step(time.Second)
	w.Expect(indexedAgain()).To(Equal(20_000))
}

// TestRejectedKeyAffectsNoOther: Clair's answers to one Scanner's key do not affect other Scanners, and the rejected key is tried less and less
// often.
func TestRejectedKeyAffectsNoOther(t *testing.T) {
	w := newWorld(t)
	w.secret("blog", "psk", map[string]string{"key": preSharedKey})
	var refused atomic.Int32
	w.clair.before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "" {
			return false
		}
		refused.Add(1)
		return respondWith(http.StatusRequestHeaderFieldsTooLarge, "")(rw, r)
	}
	shop, blog := w.scanner("shop"), w.scanner("blog", withSecret("psk"))
	data := func(scanner *v1alpha1.Scanner) string {
		_, err := w.For(scanner).DataVersion(t.Context())
		return fmt.Sprint(err)
	}
	w.Eventually(func() string { return data(shop) }).Should(Equal("<nil>"))
	w.Eventually(func() string { return data(blog) }).Should(HavePrefix("ClairUnavailable: "))
	for range 120 {
		w.advance(time.Second)
		w.Expect(data(shop)).To(Equal("<nil>"))
		w.Expect(data(blog)).To(HavePrefix("ClairUnavailable: "))
	}
	w.Expect(refused.Load()).To(BeNumerically("<", 12))
}

// TestClairThrottlesIndexing: an overloaded Clair gets no more work for a while, which is no failure of any image.
func TestClairThrottlesIndexing(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	var refused atomic.Int32
	w.clair.before = interceptOn(http.MethodPost, "/index_report", func(rw http.ResponseWriter, r *http.Request) bool {
		if refused.Add(1) > 3 {
			return false
		}
		rw.Header().Set("Retry-After", "30")
		return respondWith(http.StatusTooManyRequests, "")(rw, r)
	})
	img := anImage()(w, shop)
	w.Eventually(func() string {
		w.advance(time.Second)
		state := w.step(shop, img)
		w.Expect(state).NotTo(ContainSubstring("Failed"))
		return state
	}).Should(Equal("scanned"))
	w.Expect(w.clock.Since(noon)).To(BeNumerically(">=", 90*time.Second))
}

// TestReports: an incomplete report, or one of another image, is a failure of the image and is retried.
func TestReports(t *testing.T) {
	for name, problem := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"another image's": respondWith(http.StatusOK, `{"manifest_hash":"sha256:`+strings.Repeat("0", 64)+`"}`),
		"no JSON":         respondWith(http.StatusOK, "<html>"),
		"half of it": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"manifest_hash":`)
			panic(http.ErrAbortHandler)
		},
		"ended by an error": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Trailer", "Clair-Error")
			_, _ = io.WriteString(w, `{"manifest_hash":"`+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+`"}`)
			w.Header().Set("Clair-Error", "lost the database")
			return true
		},
		"without end": func(w http.ResponseWriter, _ *http.Request) bool {
			piece := strings.Repeat(" ", 1<<20)
			for range 40 {
				if _, err := io.WriteString(w, piece); err != nil {
					break
				}
			}
			return true
		},
		"refers to nothing": func(w http.ResponseWriter, r *http.Request) bool {
			return respondWith(http.StatusOK, `{"manifest_hash":"`+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+`","package_vulnerabilities":{"1":["2"]}}`)(w, r)
		},
		"500 for this image only": respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"no"}`),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			shop := w.scanner("shop")
			img := anImage()(w, shop)
			bad := img.Key.Digest
			w.clair.change(func() { w.clair.before = interceptOn(http.MethodGet, "/vulnerability_report/"+bad, problem) })
			w.Eventually(func() string { return w.step(shop, img) }).Should(HavePrefix("ClairReportFailed: "))
			other := w.run(shop, "other", w.push("other", registrytest.Image(t, files("other"))))
			w.scan(shop, other)
			_, err := w.For(shop).DataVersion(t.Context())
			w.Expect(err).NotTo(HaveOccurred())
			w.clair.change(func() { w.clair.before = nil })
			w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(Equal("scanned"))
			w.Expect(w.clock.Since(noon)).To(BeNumerically(">=", firstRetry))
		})
	}
}

// TestReportOfBrokenClair: a report that Clair fails to produce is retried soon, regardless of how often it has failed.
func TestReportOfBrokenClair(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage()(w, shop)
	var asked atomic.Int32
	w.clair.change(func() {
		w.clair.before = interceptOn(http.MethodGet, "/vulnerability_report/", func(rw http.ResponseWriter, r *http.Request) bool {
			asked.Add(1)
			return respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"no"}`)(rw, r)
		})
	})
	w.Eventually(func() int32 { w.advance(30 * time.Second); _ = w.step(shop, img); return asked.Load() }).Should(BeNumerically(">=", 6))
	failed, err := w.store.MatchFailure(t.Context(), store.Subject{PlatformDigest: img.Key.Digest, Scope: img.Scope, Engine: w.For(shop).Engine()})
	w.must(err)
	w.Expect(failed.RetryAt.Sub(failed.FailedAt)).To(Equal(brokenRetry))
}

// TestIndexerOutage: while only Clair's indexer is down, missing reports are no failure of images.
func TestIndexerOutage(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage()(w, shop)
	var down atomic.Bool
	w.clair.change(func() {
		w.clair.before = func(rw http.ResponseWriter, r *http.Request) bool {
			isReport := strings.Contains(r.URL.Path, "/vulnerability_report/")
			if isReport {
				down.Store(true)
			}
			return down.Load() && (isReport || strings.Contains(r.URL.Path, "/indexer/")) && respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"no"}`)(rw, r)
		}
	})
	w.Eventually(func() string { return w.step(shop, img) }).Should(HavePrefix("ClairUnavailable: "))
	w.clair.change(func() { w.clair.before = nil })
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(Equal("scanned"))
}

// TestIndexerWithoutDatabase: while Clair's indexer has no database, but the matcher has its own, the indexer reports every image as
// unknown. These answers are ignored: no manifest counts as the operator's, and no image as lost.
func TestIndexerWithoutDatabase(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	known := w.run(shop, "known", w.push("known", registrytest.Image(t, files("known"))))
	w.scan(shop, known)
	theirs := anImage()(w, shop)
	w.clair.change(func() {
		w.clair.indexed[theirs.Key.Digest] = true
		w.clair.before = func(rw http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "_report/"):
				w.clair.unknown(rw)
				return true
			case r.Method != http.MethodGet:
				return respondWith(http.StatusInternalServerError, `{"code":"internal error","message":"connection refused"}`)(rw, r)
			}
			return false
		}
	})
	w.clair.update("debian/updater", noon) // reports become due
	for range 60 {
		w.advance(10 * time.Second)
		_ = w.step(shop, theirs)
		w.Expect(w.step(shop, known)).NotTo(ContainSubstring("ClairLostImage"))
		_, err := w.store.Catalog(t.Context(), w.For(shop).Engine(), known.Key, known.Scope)
		w.must(err)
	}
	w.Expect(w.step(shop, theirs)).To(HavePrefix("ClairUnavailable: "))
	w.clair.change(func() { w.clair.before = nil })
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, theirs) }).Should(Equal("scanned"))
	manifest, err := w.store.Manifest(t.Context(), w.For(shop).Engine(), theirs.Key.Digest)
	w.must(err)
	w.Expect(manifest.AddedByOperator).To(BeFalse())
}

// TestIndexedByAnotherClient: a manifest that Clair lost and then got from another client is not deleted there.
func TestIndexedByAnotherClient(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage()(w, shop)
	w.scan(shop, img)
	w.guard = interceptOn(http.MethodGet, "/manifests/", func(http.ResponseWriter, *http.Request) bool {
		w.clair.change(func() { w.clair.indexed[img.Key.Digest] = true }) // before the image is indexed again
		return false
	})
	w.clair.change(func() { clear(w.clair.indexed) })
	w.clair.update("debian/updater", noon)
	w.Eventually(func() int { w.advance(10 * time.Second); _ = w.step(shop, img); return w.clair.posted() }).Should(Equal(2))
	w.scan(shop, img)
	manifest, err := w.store.Manifest(t.Context(), w.For(shop).Engine(), img.Key.Digest)
	w.must(err)
	w.Expect(manifest.AddedByOperator).To(BeFalse())
}

// TestRestartWhileReading: a report that was being read when the manager ended is read at once after the restart.
func TestRestartWhileReading(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage()(w, shop)
	var asked atomic.Bool
	w.clair.change(func() {
		w.clair.before = interceptOn(http.MethodGet, "/vulnerability_report/", func(_ http.ResponseWriter, r *http.Request) bool {
			asked.Store(true)
			<-r.Context().Done()
			return true
		})
	})
	w.Eventually(func() bool { _ = w.step(shop, img); return asked.Load() }).Should(BeTrue())
	w.stop()
	w.clair.change(func() { w.clair.before = nil })
	w.start()
	w.scan(shop, img) // without advancing the clock
	w.Expect(leaseTime).To(BeNumerically(">", leaseBatch/maxReportsInMemory*api.DefaultTimeout), "all that are leased can be read in time")
}

// TestDataGone: when Clair loses its data, that is reported at once.
func TestDataGone(t *testing.T) {
	var changes atomic.Int32
	w := newWorld(t, func(o *Options) { o.DataChanged = func(context.Context) { changes.Add(1) } })
	shop := w.scanner("shop")
	w.scan(shop, w.run(shop, "other", w.push("other", registrytest.Image(t, files("other")))))
	w.clair.change(func() {
		w.clair.before = interceptOn(http.MethodGet, "/vulnerability_report/", respondWith(http.StatusAccepted, ""))
	})
	before := changes.Load()
	img := anImage()(w, shop)
	w.Eventually(func() string { return w.step(shop, img) }).Should(HavePrefix("NoVulnerabilityData: "))
	w.Eventually(changes.Load).Should(Equal(before + 1))
}

// TestManyUnused: all unused manifests are found, even if there are more than one batch.
func TestManyUnused(t *testing.T) {
	w := newWorld(t)
	i := w.For(w.scanner("shop")).(*Backend).instance
	const many = sweepBatch + 2
	for n := range many {
		w.must(w.store.SaveManifest(t.Context(), store.Manifest{Engine: i.engine, PlatformDigest: fmt.Sprintf("sha256:%064x", n)}))
	}
	all, err := i.unusedManifests(t.Context(), "")
	w.must(err)
	w.Expect(all).To(HaveLen(many))
	w.Expect(all[many-1].PlatformDigest).To(HaveSuffix(fmt.Sprintf("%064x", many-1)))
}

// TestLostImage: an image that Clair does not know any more is indexed again, but not over and over.
func TestLostImage(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage()(w, shop)
	w.scan(shop, img)
	w.clair.change(func() { clear(w.clair.indexed) })
	w.clair.update("debian/updater", noon)
	w.Eventually(func() int { w.advance(10 * time.Second); _ = w.step(shop, img); return w.clair.posted() }).Should(Equal(2))
	w.scan(shop, img)
	// From here on Clair loses images at once.
	w.clair.change(func() {
		w.clair.before = interceptOn(http.MethodGet, "/vulnerability_report/", func(rw http.ResponseWriter, _ *http.Request) bool { w.clair.unknown(rw); return true })
	})
	w.clair.update("debian/updater", noon.Add(time.Minute))
	w.Eventually(func() string { w.advance(10 * time.Second); return w.step(shop, img) }).Should(HavePrefix("ClairLostImage: "))
	posts, next := w.clair.posted(), w.clock.Now()
	for range 720 {
		w.advance(5 * time.Second)
		if w.clock.Now().Before(next) {
			continue
		}
		next = w.clock.Now().Add(time.Minute) // the controllers wait at least this long
		var failure *backend.Failure
		if _, err := w.catalog(shop, img); errors.As(err, &failure) {
			next = next.Add(failure.RetryAfter)
		}
	}
	w.Expect(w.clair.posted()-posts).To(BeNumerically("<", 10), "in an hour")
}

// TestLostImagesOverBudget: when Clair has lost its database, the images of a namespace over its storage budget are indexed again, because
// their reports are stored already.
func TestLostImagesOverBudget(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Ingest.StoreSizePerNamespace = resource.MustParse("1Ki") })
	shop := w.scanner("shop")
	w.clair.change(func() {
		w.clair.advisories = []string{"CVE-2099-0001", "CVE-2099-0002", "CVE-2099-0003", "CVE-2099-0004"}
	})
	img := anImage()(w, shop)
	w.scan(shop, img)
	w.clair.change(func() { clear(w.clair.indexed) })
	w.clair.update("debian/updater", noon)
	w.Eventually(func() int { w.advance(10 * time.Second); _ = w.step(shop, img); return w.clair.posted() }).Should(Equal(2))
	w.scan(shop, img)
	next := w.run(shop, "next", w.push("next", registrytest.Image(t, files("next"))))
	w.Eventually(func() string { return w.step(shop, next) }).Should(HavePrefix("StoreBudgetExceeded: "))
}

// TestPullSecret: Clair gets the credentials for the layers, and they appear nowhere else.
func TestPullSecret(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	img := anImage(withPullSecrets("pull"))(w, shop)
	w.secret("shop", "pull", map[string]string{".dockerconfigjson": `{"auths":{"` + w.registry.Host + `":{"username":"shop","password":"s3cret"}}}`})
	w.guard = func(rw http.ResponseWriter, r *http.Request) bool {
		if _, password, _ := r.BasicAuth(); password == "s3cret" {
			return false
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		return respondWith(http.StatusUnauthorized, "")(rw, r)
	}
	w.scan(shop, img)
	w.Expect(w.clair.posts[0].Layers[0].Headers).To(HaveKey("Authorization"))
}

// TestInvalidPullSecretName: pull secrets with invalid names are ignored, as the kubelet does.
func TestInvalidPullSecretName(t *testing.T) {
	w := newWorld(t)
	shop := w.scanner("shop")
	w.scan(shop, anImage(withPullSecrets("a/b", "x;echo evil", ""))(w, shop))
}

// contextReader records the context of each Get. Every object is missing.
type contextReader struct {
	client.Reader
	before func(context.Context)
}

func (r contextReader) Get(ctx context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	r.before(ctx)
	return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, key.Name)
}

// TestServiceAccountContexts: the context of one ServiceAccount's request ends before the next request begins, and each has its own deadline.
func TestServiceAccountContexts(t *testing.T) {
	var requests []context.Context
	e := &Engines{Options: Options{Reader: contextReader{before: func(ctx context.Context) {
		for n, earlier := range requests {
			if earlier.Err() == nil {
				t.Errorf("the context of request %d is still open during request %d", n+1, len(requests)+1)
			}
		}
		if _, bounded := ctx.Deadline(); !bounded {
			t.Errorf("request %d has no deadline", len(requests)+1)
		}
		requests = append(requests, ctx)
	}}}}
	if _, _, err := e.secretNames(t.Context(), backend.Image{Namespace: "shop", ServiceAccounts: []string{"a", "b", "c"}}); err != nil {
		t.Fatal(err)
	}
	if len(requests) != 3 {
		t.Errorf("%d requests, want 3", len(requests))
	}
}
