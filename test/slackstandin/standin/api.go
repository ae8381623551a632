package standin

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
)

// methodPath is the path of chat.postMessage below the address of the API.
const methodPath = "/api/chat.postMessage"

// Workspace is what a test sets up beside the default: every channel exists and has the app as a member, and every token that begins with xoxb-
// is valid.
type Workspace struct {
	// Channels are the error codes for messages to some channels, such as "not_in_channel". "" means that there is no error any more.
	Channels map[string]string `json:"channels,omitempty"`
	// Tokens are the error codes for some tokens, such as "token_revoked".
	Tokens map[string]string `json:"tokens,omitempty"`
	// Delete are the timestamps of messages to delete.
	Delete []string `json:"delete,omitempty"`
}

// Change changes the workspace.
func (s *Standin) Change(w Workspace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.channelErrors, w.Channels)
	maps.Copy(s.tokenErrors, w.Tokens)
	for i, m := range s.messages {
		for _, timestamp := range w.Delete {
			s.messages[i].Deleted = m.Deleted || m.TS == timestamp
		}
	}
}

// chatMessage is the part of a message to chat.postMessage that Check does not look at.
type chatMessage struct {
	Channel  string `json:"channel"`
	ThreadTS string `json:"thread_ts"`
}

// channelPattern matches what chat.postMessage takes for a channel.
var (
	channelPattern   = regexp.MustCompile(`^([CDGUW][A-Z0-9]{7,}|#[^[:space:]]+)$`)
	timestampPattern = regexp.MustCompile(`^[0-9]+\.[0-9]{6}$`)
)

// postMessage handles chat.postMessage (https://docs.slack.dev/reference/methods/chat.postMessage). A refusal has the status 200.
func (s *Standin) postMessage(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		answerAPI(w, http.StatusOK, "invalid_post_type")
		return
	}
	var chat chatMessage
	if err := json.Unmarshal(body, &chat); err != nil {
		answerAPI(w, http.StatusOK, "invalid_json")
		return
	}
	problem, fails := s.nextFailure()
	switch {
	case fails && (problem.Hang || problem.Drop):
		s.recordChat(chat, body, Check(body), false)
		withhold(r, problem)
	case fails:
		if problem.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(problem.RetryAfter))
		}
		if strings.ContainsAny(problem.Body, "<{ ") { // not one of Slack's codes
			answer(w, problem.Status, problem.Body)
			return
		}
		answerAPI(w, problem.Status, problem.errorCode())
		return
	}
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	if code := s.refusal(token, chat); code != "" {
		answerAPI(w, http.StatusOK, code)
		return
	}
	if !s.allow(chat.Channel) {
		w.Header().Set("Retry-After", "1")
		answerAPI(w, http.StatusTooManyRequests, "ratelimited")
		return
	}
	violations := Check(body)
	m := s.recordChat(chat, body, violations, true)
	for _, v := range violations {
		if v.Error != "" {
			answerAPI(w, http.StatusOK, v.Error)
			return
		}
	}
	sent := map[string]any{"type": "message", "ts": m.TS, "text": m.Text}
	if m.ThreadTS != "" {
		sent["thread_ts"] = m.ThreadTS
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": true, "channel": chat.Channel, "ts": m.TS, "message": sent})
}

// refusal returns the code with which Slack would refuse a message before it looks at the content; empty for none.
func (s *Standin) refusal(token string, chat chatMessage) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case token == "":
		return "not_authed"
	case !strings.HasPrefix(token, "xoxb-"):
		return "invalid_auth"
	case s.tokenErrors[token] != "":
		return s.tokenErrors[token]
	case !channelPattern.MatchString(chat.Channel):
		return "channel_not_found"
	case s.channelErrors[chat.Channel] != "":
		return s.channelErrors[chat.Channel]
	case chat.ThreadTS != "" && !timestampPattern.MatchString(chat.ThreadTS):
		return "invalid_thread_ts"
	}
	return ""
}

// recordChat records a message to a channel. A reply to a message that does not exist is a message to the channel itself, as in Slack: Slack
// gives no error for it.
func (s *Standin) recordChat(chat chatMessage, body []byte, violations []Violation, answered bool) Message {
	s.mu.Lock()
	s.posted++
	m := Message{Channel: chat.Channel, TS: fmt.Sprintf("%d.%06d", s.now().Unix(), s.posted)}
	for _, earlier := range s.messages {
		if chat.ThreadTS != "" && earlier.TS == chat.ThreadTS && earlier.Channel == chat.Channel && !earlier.Deleted {
			m.ThreadTS = chat.ThreadTS
		}
	}
	s.mu.Unlock()
	m.Path = methodPath
	return s.record(m, body, violations, answered)
}

func answerAPI(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(max(status, http.StatusOK))
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": false, "error": code})
}
