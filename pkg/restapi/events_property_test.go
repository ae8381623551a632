package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// quietTime is how long clients have to catch up once nothing changes.
const quietTime = time.Minute

var modelNamespaces = []string{"bank", "blog", "shop", "zoo"}

// replica is an API beside that of the harness, on the same cluster and database. It learns of changes from the store alone.
func (w *harness) replica(db *store.Store) *harness {
	w.t.Helper()
	api := &API{
		Reader: w.api.Reader, TokenReviews: w.api.TokenReviews, AccessReviews: w.api.AccessReviews, Store: db, Inventory: w.api.Inventory, Clock: w.clock,
		SessionKeys: w.api.SessionKeys, Events: &events.Server{Log: events.NewLog()}, Log: w.api.Log, Metrics: prometheus.NewRegistry(),
	}
	handler, err := api.Handler()
	w.must(err)
	server := httptest.NewTLSServer(handler)
	w.t.Cleanup(server.Close)
	other := &harness{t: w.t, cluster: w.cluster, store: db, clock: w.clock, api: api, handler: handler, url: server.URL, http: server.Client()}
	return other
}

// startWatcher adds the changes of the replica's store to its log until the test ends.
func (w *harness) startWatcher() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	watcher := &events.Watcher{Log: w.api.Events.Log, Store: w.store, Reader: w.cluster, Clock: clock.RealClock{}, Logger: w.api.Log}
	go func() {
		defer close(done)
		_ = watcher.Start(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// modelClient is a client that shows what it has loaded, and loads again only what hints name.
type modelClient struct {
	user     string
	replicas []*harness

	mu      sync.Mutex
	view    map[string]string // by namespace
	last    string
	replica *harness
	// stop disconnects, and closeStream ends the stream alone.
	stop, closeStream func()
	// slow is locked while the client reads nothing.
	slow sync.Mutex
}

// load returns what a client can see of a namespace.
func (c *modelClient) load(h *harness, namespace string) string {
	var all strings.Builder
	for _, path := range []string{
		"/api/v1/overview?namespace=" + namespace, "/api/v1/vulnerabilities?limit=500&namespace=" + namespace,
		"/api/v1/vulnerabilities/CVE-2026-0001/workloads?namespace=" + namespace,
	} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(h.t.Context(), http.MethodGet, path, nil)
		request.Header.Set("Authorization", "Bearer "+c.user)
		h.handler.ServeHTTP(recorder, request)
		fmt.Fprintf(&all, "%s: %d %s\n", path, recorder.Code, recorder.Body)
	}
	return all.String()
}

func (c *modelClient) reload(namespaces ...string) {
	for _, namespace := range namespaces {
		view := c.load(c.replica, namespace)
		c.mu.Lock()
		c.view[namespace] = view
		c.mu.Unlock()
	}
}

// connect opens a stream at the last position to any replica, and follows it until the client disconnects. It reconnects if the stream ends.
func (c *modelClient) connect() {
	ctx, cancel := context.WithCancel(context.Background())
	reader := c.open()
	done := make(chan struct{})
	c.stop = func() { cancel(); c.closeStream(); <-done }
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.slow.Lock()
			c.slow.Unlock() //nolint:staticcheck // waits while the client is slow
			text, err := reader.next()
			switch {
			case err == nil:
				c.follow(text)
			case ctx.Err() == nil:
				reader = c.open()
			}
		}
	}()
}

func (c *modelClient) open() (reader eventReader) {
	c.replica = c.replicas[rand.N(len(c.replicas))]
	query := ""
	if c.last != "" {
		query = "?since=" + c.last
	}
	reader, c.closeStream = c.replica.watch(query, c.user)
	hello := reader.read()
	if hello.ID != "" {
		c.last = hello.ID
	}
	if query == "" { // what was loaded before the first event may be old
		c.reload(modelNamespaces...)
	}
	return reader
}

func (c *modelClient) follow(text []byte) {
	var event restv1.Event
	if err := json.Unmarshal(text, &event); err != nil {
		c.replica.t.Error(err)
		return
	}
	if event.ID != "" {
		c.last = event.ID
	}
	if event.Type == restv1.EventReset {
		c.reload(modelNamespaces...)
		return
	}
	for _, change := range event.Changes {
		if change.Namespace == "" {
			c.reload(modelNamespaces...)
			return
		}
		c.reload(change.Namespace)
	}
}

// stale returns a namespace in which the client's view differs from what a request returns now; empty if there is none.
func (c *modelClient) stale(namespaces []string) (namespace, seen, want string) {
	for _, namespace := range namespaces {
		want := c.load(c.replica, namespace)
		c.mu.Lock()
		seen := c.view[namespace]
		c.mu.Unlock()
		if seen != want {
			return namespace, seen, want
		}
	}
	return "", "", ""
}

// TestEventsModel lets clients follow hints while the store and the cluster change at random, and clients are slow, reconnect to another replica
// and lose permissions. Once nothing changes, each client sees what a request returns.
func TestEventsModel(t *testing.T) {
	const rounds, changesPerRound = 4, 20
	seed := rand.Uint64()
	t.Logf("the changes are those of the seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w, reviewer := newFakeHarness(t)
	w.http.Transport = w.http.Transport.(*conformanceTransport).next
	reader, err := store.OpenSQLiteReadOnly(w.path)
	w.must(err)
	t.Cleanup(func() { _ = reader.Close() })
	replicas := []*harness{w, w.replica(reader)}
	for _, r := range replicas {
		r.startWatcher()
	}
	var mu sync.Mutex
	permitted := map[string]bool{"bank": true, "blog": true, "shop": true, "zoo": true}
	reviewer.mu.Lock()
	reviewer.tokens["member"] = authenticationv1.UserInfo{Username: "member"}
	reviewer.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		mu.Lock()
		defer mu.Unlock()
		return s.User == "anyone" || permitted[s.ResourceAttributes.Namespace]
	}
	reviewer.mu.Unlock()

	model := &eventsModel{harness: w, random: random, replicas: replicas, scanners: map[string]*v1alpha1.Scanner{}}
	for _, namespace := range modelNamespaces {
		model.scanners[namespace] = w.createScanner(namespace, "main")
	}
	var clients []*modelClient
	for i := range 4 {
		c := &modelClient{user: []string{anyone, "member"}[i%2], replicas: replicas, view: map[string]string{}}
		c.connect()
		clients = append(clients, c)
		defer func() { c.stop() }()
	}
	for round := range rounds {
		slow := clients[random.IntN(len(clients))]
		slow.slow.Lock()
		lost := modelNamespaces[random.IntN(len(modelNamespaces))]
		for i := range changesPerRound {
			model.change(random.IntN(kindsOfChange))
			c := clients[random.IntN(len(clients))]
			if i%5 == 0 && c != slow {
				c.stop()
				model.change(random.IntN(kindsOfChange)) // while the client is away
				c.connect()
			}
			if i == changesPerRound/2 {
				mu.Lock()
				permitted[lost] = false
				mu.Unlock()
				w.clock.Step(decisionTTL + time.Second)
			}
		}
		slow.slow.Unlock()
		model.requireFresh(round, clients, lost)
		mu.Lock()
		permitted[lost] = true
		mu.Unlock()
		w.clock.Step(decisionTTL + time.Second)
		for _, c := range clients {
			c.reload(modelNamespaces...) // as somebody does who was refused
		}
		// The last change of all must be seen as well.
		for kind := range 2 * kindsOfChange {
			model.change(kind % kindsOfChange)
			model.requireFresh(round, clients, "")
		}
	}
}

// eventsModel makes changes at random.
type eventsModel struct {
	*harness
	random   *rand.Rand
	replicas []*harness
	scanners map[string]*v1alpha1.Scanner
	made     int
}

// requireFresh fails the test unless all clients see within quietTime what requests return. Members have no permission in the namespace lost.
func (m *eventsModel) requireFresh(round int, clients []*modelClient, lost string) {
	m.t.Helper()
	deadline := time.Now().Add(quietTime)
	for i, c := range clients {
		namespaces := modelNamespaces
		if c.user != anyone {
			namespaces = slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return n == lost })
		}
		for {
			namespace, seen, want := c.stale(namespaces)
			if namespace == "" {
				break
			}
			if time.Now().After(deadline) {
				m.t.Fatalf("round %d: client %d (%s) does not see the changes of namespace %s:\n%s\nwant\n%s", round, i, c.user, namespace, seen, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// kindsOfChange is how many kinds of changes there are.
const kindsOfChange = 9

// change makes one change. Those of objects are added to the logs, as the handlers of a cache do once the cache has them.
func (m *eventsModel) change(kind int) {
	m.made++
	random := m.random
	namespace, name := modelNamespaces[random.IntN(len(modelNamespaces))], []string{"api", "web", "job"}[random.IntN(3)]
	scanner := m.scanners[namespace]
	var found []finding.Finding
	for i := range random.IntN(4) {
		found = append(found, vulnerable(fmt.Sprintf("CVE-2026-%04d", i+random.IntN(3)), fmt.Sprint("p", i), severity(finding.Severity(1+random.IntN(5)))))
		if random.IntN(4) == 0 {
			found[i].KnownExploited = true
		}
	}
	switch kind {
	case 0:
		m.setUsedIn(namespace, scanner, name, store.Cluster, []string{"web", "worker"}[:random.IntN(3)]...)
	case 1:
		m.saveSBOM(name, store.Cluster, fmt.Sprintf(`{"artifacts":[],"made":%d}`, m.made))
	case 2, 8:
		m.saveReport(name, store.Cluster, found...)
	case 3:
		m.must(m.store.ReleaseImage(m.t.Context(), store.ScannerImage{Scanner: string(scanner.UID), Namespace: namespace, Key: key(name)}, false))
	case 4:
		m.must(m.store.SetAnnouncedSources(m.t.Context(), string(scanner.UID), [][]string{{"ci"}, nil}[random.IntN(2)]))
	case 5:
		k := store.ExternalKey{Namespace: namespace, Digest: key(name).Digest, Source: "ci"}
		_, err := m.store.SaveExternalReport(m.t.Context(), store.ExternalReport{
			ExternalKey: k, Version: 1, Time: noon.Add(time.Duration(m.made) * time.Minute), Tool: "ci", User: "jane", Findings: found,
			Text: bytes.NewReader(compress(m.t, fmt.Sprint(m.made))),
		}, func(*store.ExternalState) error { return nil })
		m.must(err)
	case 6:
		e := &v1alpha1.VulnerabilityException{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("e", m.made)},
			Spec: v1alpha1.ExceptionSpec{
				Vulnerabilities: []string{"CVE-2026-0001"}, Status: v1alpha1.VEXNotAffected, Justification: "component_not_present", Reason: "Not there.",
			},
		}
		m.must(m.cluster.Create(m.t.Context(), e))
		m.tell(restv1.HintVulnerabilityException, namespace)
	case 7:
		scanner.Status.Images.Pending = int32(m.made)
		m.must(m.cluster.Status().Update(m.t.Context(), scanner))
		m.tell(restv1.HintScanner, namespace)
	}
}

func (m *eventsModel) tell(kind restv1.HintKind, namespace string) {
	for _, r := range m.replicas {
		r.api.Events.Log.Add(restv1.Hint{Kind: kind, Namespace: namespace})
	}
}
