package clairwebhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

// marked are the annotations that the recorded notification sets.
var marked = []string{"first=" + recordedID, "second=" + recordedID}

// TestWebhook: a recorded webhook marks the Scanner's ImageScans of all images in the pages, by the digest of the image or of its platform.
// The notification is deleted, and the answer is exactly 200.
func TestWebhook(t *testing.T) {
	body, err := recorded.ReadFile("testdata/webhook.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		scanner string
		header  func(*testing.T) http.Header
		psk     string
	}{
		"with the token":               {"token", func(*testing.T) http.Header { return tokenHeader(token) }, ""},
		"signed with the key of Clair": {"psk", func(t *testing.T) http.Header { return signed(t, psk, api.NotifierIssuer, noon.Add(time.Minute)) }, psk},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.clair.psk = tt.psk
			if status, answer := w.post("shop/"+tt.scanner, string(body), tt.header(t)); status != http.StatusOK || answer != "" {
				t.Fatalf("answer %d %q, want 200 and nothing else\n%s", status, answer, w.logs.String())
			}
			if diff := cmp.Diff(marked, w.requests("shop", tt.scanner)); diff != "" {
				t.Errorf("marks (-want +got):\n%s", diff)
			}
			for _, other := range []string{"token", "psk"} {
				if marks := w.requests("shop", other); other != tt.scanner && len(marks) > 0 {
					t.Errorf("Scanner %s has marks: %v", other, marks)
				}
			}
			if read, deleted := w.clair.counts(recordedID); read != 1 || deleted != 1 {
				t.Errorf("the notification was read %d times and deleted %d times, want once each", read, deleted)
			}
			if done, got, unknown := w.metric("scanner_notifier_clair_webhooks_total", "Done"), w.metric("scanner_notifier_clair_images_marked_total", ""),
				w.metric("scanner_notifier_clair_images_unknown_total", ""); done != 1 || got != 2 || unknown != 3 {
				t.Errorf("metrics: %v done, %v marked, %v unknown; want 1, 2 and 3", done, got, unknown)
			}
		})
	}
}

// TestMarkedImageScanIsUnchanged: the annotation of an ImageScan that is already marked does not change.
func TestMarkedImageScanIsUnchanged(t *testing.T) {
	w := newWorld(t)
	var scan v1alpha1.ImageScan
	must(t, w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "token-first"}, &scan))
	scan.Annotations = map[string]string{v1alpha1.AnnotationMatchRequested: "before"}
	must(t, w.cluster.Update(t.Context(), &scan))
	if status := w.hook("shop/token", recordedID); status != http.StatusOK {
		t.Fatalf("answer %d", status)
	}
	if diff := cmp.Diff([]string{"first=before", "second=" + recordedID}, w.requests("shop", "token")); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

// TestUnauthorized: a client without the Scanner's secret learns nothing, not even whether the Scanner exists. Its request body is not read
// and has no effect.
func TestUnauthorized(t *testing.T) {
	later, before := noon.Add(time.Minute), noon.Add(-time.Minute)
	for name, tt := range map[string]struct {
		scanner string
		header  http.Header
	}{
		"without anything":              {"shop/token", http.Header{}},
		"with another token":            {"shop/token", tokenHeader("guessed")},
		"with an empty token":           {"shop/token", tokenHeader("")},
		"with the token as a bearer's":  {"shop/token", http.Header{"Authorization": {"Bearer " + token}}},
		"with a huge token":             {"shop/token", tokenHeader(strings.Repeat(token, 1000))},
		"for a Scanner without token":   {"shop/psk", tokenHeader(token)},
		"signed with another key":       {"shop/psk", signed(t, strings.Repeat("guessed", 8), api.NotifierIssuer, later)},
		"signed by another issuer":      {"shop/psk", signed(t, psk, "clairctl", later)},
		"signed long ago":               {"shop/psk", signed(t, psk, api.NotifierIssuer, before)},
		"signed, for a Scanner without": {"shop/token", signed(t, psk, api.NotifierIssuer, later)},
		"for no Scanner":                {"shop/none", tokenHeader(token)},
		"for no namespace":              {"none/token", tokenHeader(token)},
		"for a Scanner with Grype":      {"shop/grype", tokenHeader(token)},
		"for a name that cannot be":     {"shop/TOKEN", tokenHeader(token)},
		"for the way up":                {"shop/%2e%2e%2f..", tokenHeader(token)},
		"for an empty Secret":           {"shop/empty", tokenHeader("")},
		"signed, for an empty Secret":   {"shop/empty", signed(t, psk, api.NotifierIssuer, later)},
		"for a Secret that is not":      {"shop/missing", tokenHeader(token)},
		"for a Scanner with no secret":  {"shop/open", tokenHeader(token)},
	} {
		t.Run(name, func(t *testing.T) {
			grype := &v1alpha1.Scanner{Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}}}
			grype.Namespace, grype.Name = "shop", "grype"
			w := newWorld(t, grype)
			for _, scanner := range []*v1alpha1.Scanner{
				w.scanner("shop", "empty", withToken("empty"), withPSK("empty")), w.scanner("shop", "missing", withToken("missing")), w.scanner("shop", "open"),
			} {
				must(t, w.cluster.Create(t.Context(), scanner))
			}
			request := httptest.NewRequest(http.MethodPost, "/clair/"+tt.scanner, unreadableBody{t})
			request.Header = tt.header
			answer := httptest.NewRecorder()
			w.handler.ServeHTTP(answer, request)
			want := "the Scanner does not exist, has another engine, or has another secret\n"
			if answer.Code != http.StatusUnauthorized || answer.Body.String() != want {
				t.Errorf("answer %d %q, want 401 %q", answer.Code, answer.Body.String(), want)
			}
			if w.count("list")+w.count("patch") > 0 {
				t.Error("it has ImageScans looked through")
			}
		})
	}
}

// TestBadBody: a body that is not a webhook is refused, however large. The callback in a webhook is never followed.
func TestBadBody(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the callback is followed") }))
	t.Cleanup(elsewhere.Close)
	id := uuid.NewString()
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"nothing":            {"", http.StatusBadRequest},
		"HTML":               {"<html>", http.StatusBadRequest},
		"half a body":        {hookOf(id)[:40], http.StatusBadRequest},
		"no id":              {`{"callback":"http://clair"}`, http.StatusBadRequest},
		"no UUID":            {hookOf("../../indexer/api/v1/index_report"), http.StatusBadRequest},
		"a UUID of any form": {hookOf("urn:uuid:" + id), http.StatusBadRequest},
		"two":                {hookOf(id) + hookOf(id), http.StatusBadRequest},
		"huge":               {hookOf(strings.Repeat(id, 100_000)), http.StatusBadRequest},
		"huge in the end":    {hookOf(id) + strings.Repeat(" ", 1<<20), http.StatusBadRequest},
		"to elsewhere":       {fmt.Sprintf(`{"callback":%q,"notification_id":%q}`, elsewhere.URL, id), http.StatusOK},
		"to a file":          {fmt.Sprintf(`{"callback":"file:///etc/passwd","notification_id":%q}`, id), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if status, _ := w.post("shop/token", tt.body, tokenHeader(token)); status != tt.want {
				t.Errorf("answer %d, want %d", status, tt.want)
			}
			if marks := w.requests("shop", "token"); (len(marks) > 0) != (tt.want == http.StatusOK) {
				t.Errorf("marks: %v", marks)
			}
			if strings.Contains(w.logs.String(), "passwd") || strings.Contains(w.logs.String(), elsewhere.URL) {
				t.Errorf("the callback is in the log:\n%s", w.logs.String())
			}
		})
	}
}

// TestClairNotAllowed: no request goes to a URL that the operator's configuration does not list, even if a Scanner names it.
func TestClairNotAllowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a Clair that is not allowed is asked") }))
	t.Cleanup(other.Close)
	w := newWorld(t)
	must(t, w.cluster.Create(t.Context(), w.scanner("shop", "elsewhere", withToken("webhook"), func(s *v1alpha1.Scanner) { s.Spec.Backend.Clair.URL = other.URL })))
	status, answer := w.post("shop/elsewhere", hookOf(recordedID), tokenHeader(token))
	if status != http.StatusForbidden || !strings.Contains(answer, "spec.backend.clair.url") || !strings.Contains(answer, "clair.instances") {
		t.Errorf("answer %d %q, want 403 and which fields do not agree", status, answer)
	}
}

// TestRetryAfterFailure: whatever fails, Clair gets a status that makes it retry, and its retry succeeds.
func TestRetryAfterFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, method string
	}{
		"Clair does not give the pages":    {method: http.MethodGet},
		"Clair does not forget":            {method: http.MethodDelete},
		"Scanners cannot be read":          {verb: "get Scanner"},
		"ImageScans cannot be listed":      {verb: "list"},
		"ImageScans cannot be marked":      {verb: "patch"},
		"Clair wants the key of the realm": {method: "key"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change(func() { w.fails[tt.verb] = true })
			w.clair.change(func() { w.clair.fails[tt.method] = true })
			if tt.method == "key" {
				w.clair.change(func() { w.clair.psk = psk })
			}
			if status := w.hook("shop/token", recordedID); status != http.StatusServiceUnavailable {
				t.Errorf("answer %d, want 503", status)
			}
			if _, deleted := w.clair.counts(recordedID); deleted != 0 {
				t.Error("Clair was asked to delete what is not done")
			}
			w.change(func() { clear(w.fails) })
			w.clair.change(func() { clear(w.clair.fails); w.clair.psk = "" })
			if status := w.hook("shop/token", recordedID); status != http.StatusOK {
				t.Errorf("afterwards: answer %d, want 200\n%s", status, w.logs.String())
			}
			if diff := cmp.Diff(marked, w.requests("shop", "token")); diff != "" {
				t.Errorf("marks (-want +got):\n%s", diff)
			}
			if read, _ := w.clair.counts(recordedID); tt.method == http.MethodDelete && read != 1 {
				t.Errorf("the notification was read %d times, want once", read)
			}
			if got := w.metric("scanner_notifier_clair_images_marked_total", ""); got != 2 {
				t.Errorf("%v ImageScans were marked, want 2", got)
			}
		})
	}
}

// TestClairDown: the answer is 503 while Clair does not listen.
func TestClairDown(t *testing.T) {
	w := newWorld(t)
	w.clair.Close()
	if status := w.hook("shop/token", recordedID); status != http.StatusServiceUnavailable {
		t.Errorf("answer %d, want 503", status)
	}
}

// TestSecretForbidden: the log contains the commands that let the notifier read the Secret. The answer does not.
func TestSecretForbidden(t *testing.T) {
	w := newWorld(t)
	w.change(func() { w.forbidden["webhook"] = true })
	status, answer := w.post("shop/token", hookOf(recordedID), tokenHeader(token))
	if status != http.StatusServiceUnavailable || strings.Contains(answer, "kubectl") {
		t.Errorf("answer %d %q, want 503 without commands", status, answer)
	}
	if !strings.Contains(w.logs.String(), "kubectl for shop/webhook") {
		t.Errorf("the log does not say how to grant it:\n%s", w.logs.String())
	}
	w.change(func() { clear(w.forbidden) })
	if status := w.hook("shop/token", recordedID); status != http.StatusOK {
		t.Errorf("afterwards: answer %d, want 200", status)
	}
}

// TestTokenChanges: a new token works within seconds, and the previous one stops working.
func TestTokenChanges(t *testing.T) {
	w := newWorld(t)
	w.hook("shop/token", uuid.NewString())
	must(t, w.secrets.Tracker().Update(secretsResource, secret("shop", "webhook", map[string]string{"token": "another"}), "shop"))
	w.pass(11 * time.Second)
	if status := w.hook("shop/token", uuid.NewString()); status != http.StatusUnauthorized {
		t.Errorf("the token before: answer %d, want 401", status)
	}
	if status, _ := w.post("shop/token", hookOf(uuid.NewString()), tokenHeader("another")); status != http.StatusOK {
		t.Errorf("the new token: answer %d, want 200", status)
	}
}

// TestRepeated: a webhook that is sent a thousand times causes no more requests than one.
func TestRepeated(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		if status := w.hook("shop/token", recordedID); status != http.StatusOK {
			t.Fatalf("answer %d to the webhook %d", status, i)
		}
	}
	read, deleted := w.clair.counts(recordedID)
	if asked := w.count("get Scanner") + w.count("get Secret"); read != 1 || deleted != 1 || asked > 5 {
		t.Errorf("read %d times, deleted %d times, %d questions to the API server", read, deleted, asked)
	}
}

// TestConcurrentWebhooks: of a thousand concurrent copies of a webhook, as many as fit are joined, and the others are refused.
func TestConcurrentWebhooks(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	w.clair.change(func() { w.clair.hold = hold })
	answers := make(chan int, 1000)
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() { answers <- w.hook("shop/token", recordedID) })
	}
	// The requests above the limit are answered while Clair holds back its answer.
	for range 1000 - 16 {
		if status := <-answers; status != http.StatusTooManyRequests {
			t.Errorf("answer %d, want 429", status)
		}
	}
	// Other namespaces do not wait for that namespace.
	w.clair.change(func() { w.clair.hold = nil })
	if status := w.hook("other/token", uuid.NewString()); status != http.StatusOK {
		t.Errorf("another namespace: answer %d, want 200", status)
	}
	close(hold)
	all.Wait()
	for range 16 {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("answer %d, want 200", status)
		}
	}
	if read, deleted := w.clair.counts(recordedID); read != 1 || deleted != 1 {
		t.Errorf("read %d times, deleted %d times; want once", read, deleted)
	}
}

// TestForged: a thousand guesses of tokens or Scanner names cause a bounded number of requests to the API server, and do not block the
// webhooks of other namespaces.
func TestForged(t *testing.T) {
	for name, scanner := range map[string]func(int) string{
		"one Scanner":     func(int) string { return "shop/token" },
		"invented names":  func(i int) string { return fmt.Sprintf("shop/token-%d", i) },
		"all over places": func(i int) string { return fmt.Sprintf("place-%d/token", i) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if status := w.hook("other/token", uuid.NewString()); status != http.StatusOK { // the namespace is known from before
				t.Fatalf("answer %d", status)
			}
			w.pass(11 * time.Second)
			before := w.count("get Scanner")
			answers := map[int]int{}
			for i := range 1000 {
				status, _ := w.post(scanner(i), hookOf(uuid.NewString()), tokenHeader(fmt.Sprint("guess ", i)))
				answers[status]++
			}
			if answers[http.StatusUnauthorized]+answers[http.StatusTooManyRequests] != 1000 || answers[http.StatusTooManyRequests] == 0 {
				t.Errorf("answers: %v, want 401 and 429", answers)
			}
			if asked := w.count("get Scanner") - before; asked > 220 {
				t.Errorf("%d questions to the API server", asked)
			}
			if status := w.hook("other/token", uuid.NewString()); status != http.StatusOK {
				t.Errorf("another namespace: answer %d, want 200", status)
			}
		})
	}
}

// TestFlood: after an updater is added, Clair sends many notifications that each contain every image. Each ImageScan is marked once, and
// ImageScans are listed once.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		if status := w.hook("shop/token", uuid.NewString()); status != http.StatusOK {
			t.Fatalf("answer %d\n%s", status, w.logs.String())
		}
	}
	if lists, patches := w.count("list"), w.count("patch"); lists != 2 || patches != 2 {
		t.Errorf("%d pages listed and %d patches, want 2 and 2", lists, patches)
	}
	// An ImageScan that was matched in the meantime is marked again later.
	w.unmark("shop", "token-first")
	w.pass(11 * time.Second)
	w.hook("shop/token", recordedID)
	if marks := w.requests("shop", "token"); !slices.Contains(marks, "first="+recordedID) {
		t.Errorf("marks: %v", marks)
	}
}

// TestInventedNotifications: webhooks with invented notification IDs reach Clair at a bounded rate.
func TestInventedNotifications(t *testing.T) {
	w := newWorld(t)
	busy := 0
	for range 1000 {
		if w.hook("shop/token", uuid.NewString()) == http.StatusTooManyRequests {
			busy++
		}
	}
	if busy != 900 {
		t.Errorf("%d webhooks were sent away, want all after the first 100", busy)
	}
	if status := w.hook("other/token", uuid.NewString()); status != http.StatusOK {
		t.Errorf("another namespace: answer %d, want 200", status)
	}
}

// TestSlowClair: the work continues after the webhook's request has ended, and the retry finds it done.
func TestSlowClair(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	w.clair.change(func() { w.clair.hold = hold })
	ctx, goAway := context.WithCancel(t.Context())
	w.clair.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { goAway(); w.clair.ServeHTTP(rw, r) })
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/clair/shop/token", strings.NewReader(hookOf(recordedID)))
	request.Header = tokenHeader(token)
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("answer %d, want 503", answer.Code)
	}
	close(hold)
	if status := w.hook("shop/token", recordedID); status != http.StatusOK {
		t.Errorf("afterwards: answer %d, want 200", status)
	}
	if read, deleted := w.clair.counts(recordedID); read != 1 || deleted != 1 {
		t.Errorf("read %d times, deleted %d times; want once", read, deleted)
	}
}

// TestShortKey: a pre-shared key that is too short is not accepted.
func TestShortKey(t *testing.T) {
	w := newWorld(t)
	must(t, w.secrets.Tracker().Update(secretsResource, secret("shop", "clair", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte("short"))}), "shop"))
	status, _ := w.post("shop/psk", hookOf(recordedID), signed(t, strings.Repeat("x", 32), api.NotifierIssuer, noon.Add(time.Minute)))
	if status != http.StatusUnauthorized || !strings.Contains(w.logs.String(), "the pre-shared key cannot be used") {
		t.Errorf("answer %d, log:\n%s", status, w.logs.String())
	}
}
