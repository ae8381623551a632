// Package standin simulates the programs that receive messages and exports, apart from Slack: a webhook, a Workflow of Microsoft Teams, a mail
// server, an Alertmanager, a DefectDojo and a Dependency-Track.
//
// Each channel, a word in addresses, has all of them. A request that the program would refuse is refused and recorded. What was accepted changes the
// channel's State as it would change that of the program.
package standin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Credentials that all programs accept: Token signs requests to the webhook, is the API key of the tools, and the password of User.
const (
	User  = "scanner"
	Token = "0123456789abcdef0123456789abcdef01234567"
)

// maxBody bounds a request, in bytes.
const maxBody = 16 << 20

// Paths of the programs below that of a channel.
const (
	WebhookPath         = "webhook"
	TeamsPath           = "teams"
	AlertmanagerPath    = "alertmanager"
	DefectDojoPath      = "dojo"
	DependencyTrackPath = "track"
	// RedirectPath answers with a redirect to the control port of the stand-in, inside the cluster.
	RedirectPath = "redirect"
)

// State is what the programs of a channel have.
type State struct {
	// Events are those that the webhook got, Cards the titles of those that Teams got, and Mails those that the mail server got, oldest first.
	Events []Event  `json:"events,omitempty"`
	Cards  []string `json:"cards,omitempty"`
	Mails  []Mail   `json:"mails,omitempty"`
	Alerts []Alert  `json:"alerts,omitempty"`
	// Tests are those of DefectDojo by product, engagement and title. Projects are those of Dependency-Track by name and version.
	Tests    map[string]Test    `json:"tests,omitempty"`
	Projects map[string]Project `json:"projects,omitempty"`
	// Followed counts requests that followed a redirect. Refused are reasons why requests were refused.
	Followed int      `json:"followed,omitempty"`
	Refused  []string `json:"refused,omitempty"`
	// LosesAnswers counts the imports to DefectDojo that will be accepted and answered with 503, as by a proxy that has lost the answer.
	LosesAnswers int `json:"losesAnswers,omitempty"`
}

// Event is an event that the webhook got. Kind, Title and Repositories are those of its data.
type Event struct {
	ID           string   `json:"id"`
	Kind         string   `json:"kind"`
	Title        string   `json:"title"`
	Repositories []string `json:"repositories,omitempty"`
}

// Mail is a mail that the mail server got over TLS from User.
type Mail struct {
	MessageID string   `json:"messageID"`
	Subject   string   `json:"subject"`
	To        []string `json:"to"`
}

// Alert is an alert. It fires until EndsAt, and does not end earlier when it comes again.
type Alert struct {
	Labels map[string]string `json:"labels"`
	EndsAt time.Time         `json:"endsAt"`
}

// Test is a test in DefectDojo. Open are the titles of its open findings.
type Test struct {
	Imports int      `json:"imports"`
	Open    []string `json:"open,omitempty"`
}

// Project is a project in Dependency-Track. Components are the names of those in its newest SBOM.
type Project struct {
	Uploads    int      `json:"uploads"`
	Components []string `json:"components,omitempty"`
}

// Standin simulates the programs. Use New to create one; it is safe for concurrent use.
type Standin struct {
	// control is the address of Control, to which RedirectPath redirects.
	control string
	log     io.Writer

	mu       sync.Mutex
	channels map[string]*State
}

// New returns a stand-in that prints requests to log.
func New(control string, log io.Writer) *Standin {
	return &Standin{control: control, log: log, channels: map[string]*State{}}
}

// answer is the status and the body of an answer.
type answer struct {
	status int
	body   string
}

// handler applies a request to the state of its channel. An error refuses the request; a *refusal has its status.
type handler func(state *State, r *http.Request, body []byte) (answer, error)

// refusal is an error with the status of the answer.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

var errUnauthorized = &refusal{http.StatusUnauthorized, "the credentials are wrong"}

// Programs returns the handler of all programs except the mail server.
func (s *Standin) Programs() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]handler{
		WebhookPath: takeEvent, TeamsPath: takeCard, AlertmanagerPath + "/api/v2/alerts": takeAlerts,
		DefectDojoPath + "/api/v2/reimport-scan/{$}": takeFindings, DependencyTrackPath + "/api/v1/bom": takeSBOM,
	} {
		mux.HandleFunc("POST /{channel}/"+pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, handle) })
	}
	mux.HandleFunc("/{channel}/"+RedirectPath, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.control+"/followed/"+r.PathValue("channel"), http.StatusTemporaryRedirect)
	})
	return mux
}

func (s *Standin) serve(w http.ResponseWriter, r *http.Request, handle handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	given := answer{}
	s.change(r.PathValue("channel"), func(state *State) {
		if err == nil {
			given, err = handle(state, r, body)
		}
		if err != nil {
			state.Refused = append(state.Refused, r.URL.Path+": "+err.Error())
		}
	})
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		given = answer{refused.status, refused.reason}
	case err != nil:
		given = answer{http.StatusBadRequest, err.Error()}
	}
	if given.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(given.status)
	_, _ = io.WriteString(w, given.body)
	_, _ = fmt.Fprintf(s.log, "%s: %d bytes, %d %s\n", r.URL.Path, len(body), given.status, given.body)
}

// change changes the state of a channel.
func (s *Standin) change(channel string, change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[channel] == nil {
		s.channels[channel] = &State{}
	}
	change(s.channels[channel])
}

// Control returns the handler for tests: GET /state/{channel} returns a State, POST /loses/{channel} sets State.LosesAnswers to 1, and GET /healthz.
func (s *Standin) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/followed/{channel}", func(_ http.ResponseWriter, r *http.Request) {
		s.change(r.PathValue("channel"), func(state *State) { state.Followed++ })
	})
	mux.HandleFunc("POST /loses/{channel}", func(_ http.ResponseWriter, r *http.Request) {
		s.change(r.PathValue("channel"), func(state *State) { state.LosesAnswers = 1 })
	})
	mux.HandleFunc("GET /state/{channel}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		s.change(r.PathValue("channel"), func(state *State) { _ = json.NewEncoder(w).Encode(state) })
	})
	return mux
}

// takeEvent verifies the signature as docs/use/receivers.md describes.
func takeEvent(state *State, r *http.Request, body []byte) (answer, error) {
	mac := hmac.New(sha256.New, []byte(Token))
	mac.Write(body)
	if !hmac.Equal([]byte("sha256="+hex.EncodeToString(mac.Sum(nil))), []byte(r.Header.Get("X-Signature"))) {
		return answer{}, &refusal{http.StatusUnauthorized, "the signature is wrong"}
	}
	var event cloudevents.Event
	if err := json.Unmarshal(body, &event); err != nil {
		return answer{}, err
	}
	if err := event.Validate(); err != nil {
		return answer{}, err
	}
	var data struct {
		Kind, Title string
		Sections    []struct{ Repository string }
	}
	if err := event.DataAs(&data); err != nil {
		return answer{}, err
	}
	taken := Event{ID: event.ID(), Kind: data.Kind, Title: data.Title}
	for _, section := range data.Sections {
		taken.Repositories = append(taken.Repositories, section.Repository)
	}
	state.Events = append(state.Events, taken)
	return answer{status: http.StatusNoContent}, nil
}

// takeCard takes an Adaptive Card in the message of a Workflow. Its title is its first line.
func takeCard(state *State, _ *http.Request, body []byte) (answer, error) {
	var message struct {
		Attachments []struct {
			ContentType string
			Content     struct {
				Type string
				Body []struct{ Inlines []struct{ Text string } }
			}
		}
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return answer{}, err
	}
	if len(message.Attachments) != 1 || message.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" ||
		message.Attachments[0].Content.Type != "AdaptiveCard" || len(message.Attachments[0].Content.Body) == 0 {
		return answer{}, errors.New("the message has no Adaptive Card with text")
	}
	title := ""
	for _, run := range message.Attachments[0].Content.Body[0].Inlines {
		title += run.Text
	}
	state.Cards = append(state.Cards, title)
	return answer{status: http.StatusAccepted}, nil
}

// takeAlerts keeps alerts as Alertmanager does: by their labels, until they end.
func takeAlerts(state *State, r *http.Request, body []byte) (answer, error) {
	if user, password, _ := r.BasicAuth(); user != User || password != Token {
		return answer{}, errUnauthorized
	}
	var alerts []Alert
	if err := json.Unmarshal(body, &alerts); err != nil {
		return answer{}, err
	}
	for _, alert := range alerts {
		if alert.Labels["alertname"] == "" || alert.EndsAt.IsZero() {
			return answer{}, errors.New("an alert has no name, or no end")
		}
		known := slices.IndexFunc(state.Alerts, func(a Alert) bool { return maps.Equal(a.Labels, alert.Labels) })
		if known < 0 {
			state.Alerts = append(state.Alerts, alert)
		} else if alert.EndsAt.After(state.Alerts[known].EndsAt) {
			state.Alerts[known].EndsAt = alert.EndsAt
		}
	}
	return answer{status: http.StatusOK}, nil
}

// takeFindings imports a report as DefectDojo does: a test has the findings of its newest report, and those of earlier ones that it is to keep.
func takeFindings(state *State, r *http.Request, body []byte) (answer, error) {
	if r.Header.Get("Authorization") != "Token "+Token {
		return answer{}, errUnauthorized
	}
	fields, file, err := form(r, body, "file")
	if err != nil {
		return answer{}, err
	}
	var report struct {
		Findings []struct{ Title, Severity string }
	}
	if err := json.Unmarshal(file, &report); err != nil {
		return answer{}, err
	}
	if fields["scan_type"] != "Generic Findings Import" || fields["auto_create_context"] != "true" {
		return answer{}, fmt.Errorf("the form is %v", fields)
	}
	closes, err := strconv.ParseBool(fields["close_old_findings"])
	if err != nil {
		return answer{}, fmt.Errorf("close_old_findings: %w", err)
	}
	if state.Tests == nil {
		state.Tests = map[string]Test{}
	}
	name := strings.Join([]string{fields["product_name"], fields["engagement_name"], fields["test_title"]}, "/")
	test := Test{Imports: state.Tests[name].Imports + 1}
	for _, finding := range report.Findings {
		test.Open = append(test.Open, finding.Title)
	}
	if !closes {
		test.Open = append(test.Open, state.Tests[name].Open...)
	}
	slices.Sort(test.Open)
	test.Open = slices.Compact(test.Open)
	state.Tests[name] = test
	if state.LosesAnswers > 0 {
		state.LosesAnswers--
		return answer{http.StatusServiceUnavailable, "upstream request timeout"}, nil
	}
	return answer{http.StatusCreated, fmt.Sprintf(`{"test":%[1]d,"test_id":%[1]d}`, len(state.Tests))}, nil
}

// takeSBOM takes an SBOM as Dependency-Track does: a project has the components of its newest SBOM.
func takeSBOM(state *State, r *http.Request, body []byte) (answer, error) {
	if r.Header.Get("X-Api-Key") != Token {
		return answer{}, errUnauthorized
	}
	fields, file, err := form(r, body, "bom")
	if err != nil {
		return answer{}, err
	}
	var sbom struct {
		BOMFormat, SpecVersion string
		Components             []struct{ Name string }
	}
	if err := json.Unmarshal(file, &sbom); err != nil {
		return answer{}, err
	}
	if sbom.BOMFormat != "CycloneDX" || sbom.SpecVersion != "1.6" || fields["autoCreate"] != "true" {
		return answer{}, fmt.Errorf("the form is %v, with an SBOM in %s %s", fields, sbom.BOMFormat, sbom.SpecVersion)
	}
	if state.Projects == nil {
		state.Projects = map[string]Project{}
	}
	name := fields["projectName"] + "@" + fields["projectVersion"]
	project := Project{Uploads: state.Projects[name].Uploads + 1}
	for _, component := range sbom.Components {
		project.Components = append(project.Components, component.Name)
	}
	slices.Sort(project.Components)
	state.Projects[name] = project
	return answer{http.StatusOK, `{"token":"0198f3a2-7d1c-7b54-9a7e-0a4f3c1f2b11"}`}, nil
}

// form returns the fields of a multipart form, and its file.
func form(r *http.Request, body []byte, name string) (fields map[string]string, file []byte, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "multipart/form-data" {
		return nil, nil, fmt.Errorf("the body is %s, want a form", kind)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := r.ParseMultipartForm(maxBody); err != nil {
		return nil, nil, err
	}
	fields = map[string]string{}
	for key, values := range r.MultipartForm.Value {
		fields[key] = strings.Join(values, ",")
	}
	if len(r.MultipartForm.File[name]) != 1 {
		return nil, nil, fmt.Errorf("the form has no file %s", name)
	}
	opened, err := r.MultipartForm.File[name][0].Open()
	if err != nil {
		return nil, nil, err
	}
	defer opened.Close()
	file, err = io.ReadAll(opened)
	return fields, file, err
}
