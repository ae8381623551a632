package standin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of accepted and stored messages.
const (
	maxBody     = 1 << 20
	maxMessages = 1000
	// burst is the number of messages that a webhook accepts at once before it limits them to one per second.
	burst = 3
)

// Message is a message that was accepted, or rejected for its content.
type Message struct {
	Time time.Time `json:"time"`
	// Path is the path of the webhook, or that of chat.postMessage.
	Path string `json:"path"`
	// Channel, TS and ThreadTS are set for chat.postMessage. ThreadTS is that of the message that this one is a reply to; empty for a message to
	// the channel itself. Deleted means that a test has deleted the message.
	Channel  string `json:"channel,omitempty"`
	TS       string `json:"ts,omitempty"`
	ThreadTS string `json:"threadTS,omitempty"`
	Deleted  bool   `json:"deleted,omitempty"`
	// Text is the message as a person would see it.
	Text string `json:"text"`
	// Payload is the body of the request.
	Payload json.RawMessage `json:"payload"`
	// Violations are violations of Slack's limits and of the project's rules. A violation with an Error means that the message was
	// rejected.
	Violations []Violation `json:"violations,omitempty"`
	// Answered is false if the message was accepted and the answer withheld.
	Answered bool `json:"answered"`
}

// Failure is a failure that a test requests. It applies to the next Times requests.
type Failure struct {
	// Status is the status code of the answer, without accepting the message; 0 with Hang or Drop.
	Status int `json:"status,omitempty"`
	// Body is the body of the answer; empty means Slack's error code for the status.
	Body string `json:"body,omitempty"`
	// RetryAfter is the value of the header in seconds; 0 sends no header.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Hang accepts the message and never answers. Drop accepts it and closes the connection.
	Hang bool `json:"hang,omitempty"`
	Drop bool `json:"drop,omitempty"`
	// Times is the number of requests that the failure applies to; 0 means 1.
	Times int `json:"times,omitempty"`
}

// Standin is a simulated Slack. Use New to create one; the zero value is not usable.
type Standin struct {
	now   func() time.Time
	print io.Writer

	mu       sync.Mutex
	messages []Message
	failures []Failure
	buckets  map[string]*bucket
	// posted is the number of messages to chat.postMessage. channelErrors and tokenErrors are those of Workspace.
	posted                     int
	channelErrors, tokenErrors map[string]string
}

// bucket is the rate limiter of one webhook or channel.
type bucket struct {
	tokens float64
	at     time.Time
}

// New returns a stand-in that uses the given clock and prints each message to out.
func New(now func() time.Time, out io.Writer) *Standin {
	return &Standin{now: now, print: out, buckets: map[string]*bucket{}, channelErrors: map[string]string{}, tokenErrors: map[string]string{}}
}

// Webhooks returns the handler of Slack's side: POST /services/… for webhooks, and POST /api/chat.postMessage for apps.
func (s *Standin) Webhooks() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /services/{path...}", s.post)
	mux.HandleFunc("POST "+methodPath, s.postMessage)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusNotFound, "no_service") })
	return mux
}

// Control returns the handler for tests: GET and DELETE /messages, POST /control with a Failure, POST /workspace with a Workspace, GET /healthz.
func (s *Standin) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Messages())
	})
	mux.HandleFunc("DELETE /messages", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.messages = nil
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("POST /control", func(w http.ResponseWriter, r *http.Request) {
		var t Failure
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&t); err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		if !t.Hang && !t.Drop && (t.Status < 200 || t.Status > 599) {
			answer(w, http.StatusBadRequest, "want a status from 200 to 599, or hang, or drop")
			return
		}
		s.Expect(t)
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("POST /workspace", func(w http.ResponseWriter, r *http.Request) {
		var change Workspace
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&change); err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		s.Change(change)
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

// Messages returns the received messages, oldest first. It is never nil.
func (s *Standin) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message{}, s.messages...)
}

// Expect makes the next requests fail, after all failures that were requested before.
func (s *Standin) Expect(t Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Times = max(1, t.Times)
	s.failures = append(s.failures, t)
}

// post handles one message.
func (s *Standin) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		answer(w, http.StatusBadRequest, "invalid_payload")
		return
	}
	problem, fails := s.nextFailure()
	switch {
	case fails && (problem.Hang || problem.Drop):
		s.record(Message{Path: r.URL.Path}, body, Check(body), false)
		withhold(r, problem)
	case fails:
		if problem.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(problem.RetryAfter))
		}
		answer(w, problem.Status, problem.errorCode())
		return
	case !s.allow(r.URL.Path):
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, "rate_limited")
		return
	}
	violations := Check(body)
	s.record(Message{Path: r.URL.Path}, body, violations, true)
	for _, v := range violations {
		if v.Error != "" {
			answer(w, http.StatusBadRequest, v.Error)
			return
		}
	}
	answer(w, http.StatusOK, "ok")
}

// withhold gives no answer: at once, or when the client does not wait any longer.
func withhold(r *http.Request, problem Failure) {
	if problem.Hang {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler) // closes the connection without an answer
}

// nextFailure returns the failure of the next request, if there is one, and uses it up.
func (s *Standin) nextFailure() (Failure, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) == 0 {
		return Failure{}, false
	}
	t := s.failures[0]
	if s.failures[0].Times--; s.failures[0].Times == 0 {
		s.failures = s.failures[1:]
	}
	return t, true
}

// allow implements Slack's rate limit: one message per second and webhook or channel, with a short burst after a pause
// (https://docs.slack.dev/apis/web-api/rate-limits).
func (s *Standin) allow(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	b, known := s.buckets[path]
	if !known {
		b = &bucket{tokens: burst, at: now}
		s.buckets[path] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// record completes and records a message.
func (s *Standin) record(m Message, body []byte, violations []Violation, answered bool) Message {
	m.Time, m.Text, m.Violations, m.Answered, m.Payload = s.now().UTC(), Readable(body), violations, answered, json.RawMessage(`null`)
	if json.Valid(body) {
		m.Payload = body
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
	s.messages = s.messages[max(0, len(s.messages)-maxMessages):]
	fmt.Fprintf(s.print, "──── %s %s ────\n%s\n", m.Time.Format(time.RFC3339), m.target(), m.Text)
	for _, v := range violations {
		fmt.Fprintf(s.print, "VIOLATION %s %s\n", v.Error, v.Detail)
	}
	fmt.Fprintln(s.print)
	return m
}

// target names the webhook, or the channel and thread, for people.
func (m Message) target() string {
	switch {
	case m.Channel == "":
		return m.Path
	case m.ThreadTS == "":
		return m.Channel + ", message " + m.TS
	}
	return m.Channel + ", reply to message " + m.ThreadTS
}

// errorCodes are Slack's error codes by status (https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks).
var errorCodes = map[int]string{
	http.StatusOK: "ok", http.StatusBadRequest: "invalid_payload", http.StatusForbidden: "action_prohibited",
	http.StatusNotFound: "no_service", http.StatusGone: "channel_is_archived",
	http.StatusTooManyRequests: "rate_limited", http.StatusInternalServerError: "rollup_error",
}

func (t Failure) errorCode() string {
	if t.Body != "" {
		return t.Body
	}
	return errorCodes[t.Status]
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(max(status, http.StatusOK))
	_, _ = io.WriteString(w, text)
}

var (
	linkPattern = regexp.MustCompile(`<[^<>|]+\|([^<>]+)>`)
	unescaper   = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "\u00a0", " ")
)

// Readable returns a message as a person would see it, without bold text and links.
func Readable(body []byte) string {
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return "(not a message: " + err.Error() + ")"
	}
	if len(p.Blocks) == 0 {
		return unescaper.Replace(p.Text)
	}
	var lines []string
	for _, raw := range p.Blocks {
		b, _ := readBlock(raw) // an invalid block is shown as far as it can be read
		texts := slices.Concat(b.Fields, b.Elements)
		if b.Text != nil {
			texts = append([]text{*b.Text}, texts...)
		}
		for _, t := range texts {
			line := t.Text
			if t.Type == "mrkdwn" {
				line = unescaper.Replace(linkPattern.ReplaceAllString(strings.ReplaceAll(line, "*", ""), "$1"))
			}
			if b.Type == "header" {
				line += "\n"
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
