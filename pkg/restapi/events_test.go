package restapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/santhosh-tekuri/jsonschema/v6"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
)

// eventReader reads the events of a stream.
type eventReader struct {
	t    testing.TB
	next func() ([]byte, error)
}

// read returns the next event but for those that keep the stream alive, and checks it against the OpenAPI document.
func (r eventReader) read() (e restv1.Event) {
	r.t.Helper()
	for e.Type == "" || e.Type == restv1.EventKeepAlive {
		text, err := r.next()
		if err != nil {
			r.t.Fatalf("reading an event: %v", err)
		}
		parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, schema := range openAPIContract().responses(http.MethodGet, PathEvents)["200"] {
			if err := schema.Validate(parsed); err != nil {
				r.t.Errorf("the event is not what the document says: %v\n%s", err, text)
			}
		}
		e = restv1.Event{}
		if err := json.Unmarshal(text, &e); err != nil {
			r.t.Fatal(err)
		}
	}
	return e
}

// require fails the test unless the next event has this type and these changes.
func (r eventReader) require(kind restv1.EventType, changes ...restv1.Hint) (e restv1.Event) {
	r.t.Helper()
	e = r.read()
	slices.SortFunc(e.Changes, func(a, b restv1.Hint) int {
		return strings.Compare(a.Namespace+string(a.Kind), b.Namespace+string(b.Kind))
	})
	if e.Type != kind || !slices.Equal(e.Changes, changes) {
		r.t.Fatalf("the event is %+v, want %s %v", e, kind, changes)
	}
	return e
}

// watch opens a stream of server-sent events. It is closed at the end of the test, or before by stop.
func (w *harness) watch(query, token string, headers ...string) (reader eventReader, stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+PathEvents+query, nil)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.http.Do(r)
	w.must(err)
	w.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		w.t.Fatalf("opening a stream: %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	return eventReader{w.t, func() ([]byte, error) {
		for lines.Scan() {
			if text, found := strings.CutPrefix(lines.Text(), "data: "); found {
				return []byte(text), nil
			}
		}
		return nil, fmt.Errorf("the stream has ended: %w", lines.Err())
	}}, cancel
}

// watchWebSocket opens a stream over a WebSocket.
func (w *harness) watchWebSocket(query, token string, headers http.Header) (eventReader, *websocket.Conn, *http.Response, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	headers = headers.Clone()
	if headers == nil {
		headers = http.Header{}
	}
	headers.Set("Authorization", "Bearer "+token)
	connection, response, err := websocket.Dial(ctx, w.url+PathEvents+query, &websocket.DialOptions{
		HTTPHeader: headers, Subprotocols: []string{events.Subprotocol},
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	})
	return eventReader{w.t, func() ([]byte, error) {
		_, text, err := connection.Read(ctx)
		return text, err
	}}, connection, response, err
}

func findings(namespace string) restv1.Hint {
	return restv1.Hint{Kind: restv1.HintFindings, Namespace: namespace}
}

// TestEvents checks that both kinds of streams carry the same events, and that each resumes where it ended.
func TestEvents(t *testing.T) {
	w, _ := newFakeHarness(t)
	log := w.api.Events.Log
	sse, stop := w.watch("", anyone)
	hello := sse.require(restv1.EventHello)
	if hello.Version != "1.0.0" || hello.Build != "b1" || hello.ID == "" {
		t.Errorf("the first event is %+v, want the version, the build and a position", hello)
	}
	ws, connection, _, err := w.watchWebSocket("", anyone, nil)
	w.must(err)
	if connection.Subprotocol() != events.Subprotocol {
		t.Errorf("the subprotocol is %q, want %q", connection.Subprotocol(), events.Subprotocol)
	}
	ws.require(restv1.EventHello)
	log.Add(findings("shop"), restv1.Hint{Kind: restv1.HintClusterScanner})
	want := []restv1.Hint{{Kind: restv1.HintClusterScanner}, findings("shop")}
	last := sse.require(restv1.EventChanged, want...)
	ws.require(restv1.EventChanged, want...)

	stop()
	_ = connection.Close(websocket.StatusNormalClosure, "")
	log.Add(findings("bank"))
	log.Add(findings("bank"))
	resumed, _ := w.watch("", anyone, "Last-Event-ID", last.ID)
	resumed.require(restv1.EventHello)
	resumed.require(restv1.EventChanged, findings("bank"))
	resumed, _, _, err = w.watchWebSocket("?since="+last.ID+"&namespace=bank", anyone, nil)
	w.must(err)
	resumed.require(restv1.EventHello)
	resumed.require(restv1.EventChanged, findings("bank"))

	// The position is one of another replica.
	other, _ := w.watch("?since=0123456789abcdef-1", anyone)
	other.require(restv1.EventHello)
	other.require(restv1.EventReset)
}

// TestEventsSinceSession checks that no change between the session and the stream is lost.
func TestEventsSinceSession(t *testing.T) {
	w, _ := newFakeHarness(t)
	_, body := w.get(PathSession, anyone)
	var session restv1.Session
	w.must(json.Unmarshal(body, &session))
	w.api.Events.Log.Add(findings("shop"))
	stream, _ := w.watch("?since="+session.EventID, anyone)
	stream.require(restv1.EventHello)
	stream.require(restv1.EventChanged, findings("shop"))
}

// TestEventsAreForThoseWhoMayKnow checks that no event names a namespace whose images the caller may not list, also after the permission is
// withdrawn while the stream is open.
func TestEventsAreForThoseWhoMayKnow(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.mu.Lock()
	reviewer.tokens["member"] = authenticationv1.UserInfo{Username: "member"}
	namespaces := []string{"bank", "shop"}
	reviewer.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "anyone" || slices.Contains(namespaces, s.ResourceAttributes.Namespace) && s.ResourceAttributes.Resource == resourceImageScans
	}
	reviewer.mu.Unlock()
	log := w.api.Events.Log
	stream, _ := w.watch("", "member")
	stream.require(restv1.EventHello)
	log.Add(findings("bank"), findings("secret"), findings("shop"), restv1.Hint{Kind: restv1.HintScanner, Namespace: "secret"})
	stream.require(restv1.EventChanged, findings("bank"), findings("shop"))

	reviewer.mu.Lock()
	namespaces = []string{"shop"}
	reviewer.mu.Unlock()
	w.clock.Step(decisionTTL + time.Second)
	log.Add(findings("bank"), findings("shop"))
	stream.require(restv1.EventChanged, findings("shop"))

	response, body := w.get(PathEvents+"?namespace=bank", "member")
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a stream of a namespace without permission: %s %s, want 403", response.Status, body)
	}
}

// TestEventsOfOtherOrigins checks that a page of another origin cannot open a stream, whatever cookies the browser adds.
func TestEventsOfOtherOrigins(t *testing.T) {
	w, _ := newFakeHarness(t)
	for name, headers := range map[string]http.Header{
		"another origin":       {"Origin": {"https://evil.example"}},
		"another site":         {"Sec-Fetch-Site": {"cross-site"}},
		"a host that is bound": {"Origin": {"https://127.0.0.1.evil.example"}},
	} {
		for _, upgrade := range []bool{false, true} {
			var response *http.Response
			if upgrade {
				_, connection, answer, err := w.watchWebSocket("", anyone, headers)
				if err == nil {
					_ = connection.CloseNow()
				}
				response = answer
			} else {
				for header := range headers {
					response, _ = w.get(PathEvents, anyone, header, headers.Get(header))
				}
			}
			if response == nil || response.StatusCode != http.StatusForbidden {
				t.Errorf("%s (WebSocket: %t): %v, want 403", name, upgrade, response)
			}
		}
	}
	_, connection, _, err := w.watchWebSocket("", anyone, http.Header{"Origin": {w.url}})
	if err != nil {
		t.Fatalf("a WebSocket of the same origin: %v", err)
	}
	_ = connection.CloseNow()
}

// TestEventsOfOneUser checks that the streams of one user are bounded, and keep nobody from anything: neither other users from streams, nor the
// same user from requests.
func TestEventsOfOneUser(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.mu.Lock()
	reviewer.tokens["other"] = authenticationv1.UserInfo{Username: "other"}
	reviewer.mu.Unlock()
	var stops []func()
	for range events.MaxStreamsPerUser {
		stream, stop := w.watch("", anyone)
		stream.require(restv1.EventHello)
		stops = append(stops, stop)
	}
	response, body := w.get(PathEvents, anyone)
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("one stream more than %d: %s %s, want 429 with Retry-After", events.MaxStreamsPerUser, response.Status, body)
	}
	if n := w.api.users.Used("anyone"); n != 0 {
		t.Errorf("streams count as %d requests, want none", n)
	}
	if response, _ := w.get(PathSession, anyone); response.StatusCode != http.StatusOK {
		t.Errorf("a request beside the streams: %s, want 200", response.Status)
	}
	stream, _ := w.watch("", "other")
	stream.require(restv1.EventHello)
	families, err := w.metrics.Gather()
	w.must(err)
	for _, family := range families {
		if open := family.GetMetric()[0].GetGauge().GetValue(); family.GetName() == "scanner_operator_api_event_streams" && open != events.MaxStreamsPerUser+1 {
			t.Errorf("the metric says that %v streams are open, want %d", open, events.MaxStreamsPerUser+1)
		}
	}
	if n := w.countRequests(operationEvents, "429"); n != 1 {
		t.Errorf("%v requests of %s are counted as refused, want 1", n, operationEvents)
	}
	stops[0]()
	deadline := time.Now().Add(20 * time.Second)
	for {
		release, err := w.api.Events.Acquire("anyone", "anyone")
		if err == nil {
			release()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a stream that ended still has its slot")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestEventParameters checks that what cannot be a position is refused with its name.
func TestEventParameters(t *testing.T) {
	w, _ := newFakeHarness(t)
	for query, field := range map[string]string{"?since=": "since", "?since=x": "since", "?namespace=A": "namespace", "?after=1": "after", "?since=a-" + strings.Repeat("1", 80): "since"} {
		response, body := w.get(PathEvents+query, anyone)
		var problem restv1.Problem
		w.must(json.Unmarshal(body, &problem))
		if response.StatusCode != http.StatusBadRequest || problem.Field != field {
			t.Errorf("%s: %s %s, want 400 with the field %s", query, response.Status, body, field)
		}
	}
	if response, _ := w.get(PathEvents, "made-up"); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a valid token: %s, want 401", response.Status)
	}
}
