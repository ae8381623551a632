package standin

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPostMessage: chat.postMessage answers as Slack does: errors with the status 200, threads, and a reply to a deleted message in the channel.
func TestPostMessage(t *testing.T) {
	now := time.Unix(1777896000, 0)
	s := New(func() time.Time { return now }, io.Discard)
	server := httptest.NewServer(s.Webhooks())
	defer server.Close()
	s.Change(Workspace{
		Channels: map[string]string{"#old": "is_archived", "#private": "not_in_channel"},
		Tokens:   map[string]string{"xoxb-revoked": "token_revoked"},
	})
	call := func(token, body string) string {
		t.Helper()
		now = now.Add(time.Second)
		request, err := http.NewRequest(http.MethodPost, server.URL+methodPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json; charset=utf-8")
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer struct {
			OK      bool
			Error   string
			TS      string
			Message struct {
				ThreadTS string `json:"thread_ts"`
			}
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK && answer.Error != "ratelimited" {
			t.Fatalf("status %d with error %v", response.StatusCode, err)
		}
		if !answer.OK {
			return answer.Error
		}
		return answer.TS + " in " + answer.Message.ThreadTS
	}
	const token = "xoxb-valid"
	for i, tt := range []struct {
		before            func()
		token, body, want string
	}{
		{nil, token, `{"channel":"#shop","text":"first"}`, "1777896001.000001 in "},
		{nil, token, `{"channel":"#shop","text":"reply","thread_ts":"1777896001.000001"}`, "1777896002.000002 in 1777896001.000001"},
		{nil, token, `{"channel":"#other","text":"not its thread","thread_ts":"1777896001.000001"}`, "1777896003.000003 in "},
		{func() { s.Change(Workspace{Delete: []string{"1777896001.000001"}}) }, token, `{"channel":"#shop","text":"late","thread_ts":"1777896001.000001"}`, "1777896004.000004 in "},
		{nil, token, `{"channel":"#shop","text":"x","thread_ts":"soon"}`, "invalid_thread_ts"},
		{nil, "", `{"channel":"#shop","text":"x"}`, "not_authed"},
		{nil, "xoxp-1", `{"channel":"#shop","text":"x"}`, "invalid_auth"},
		{nil, "xoxb-revoked", `{"channel":"#shop","text":"x"}`, "token_revoked"},
		{nil, token, `{"channel":"shop","text":"x"}`, "channel_not_found"},
		{nil, token, `{"channel":"#old","text":"x"}`, "is_archived"},
		{nil, token, `{"channel":"#private","text":"x"}`, "not_in_channel"},
		{func() { s.Change(Workspace{Channels: map[string]string{"#private": ""}}) }, token, `{"channel":"#private","text":"x"}`, "1777896012.000005 in "},
		{nil, token, `{"channel":"#shop"}`, "no_text"},
		{nil, token, `{"channel":`, "invalid_json"},
		{func() { s.Expect(Failure{Status: 200, Body: "fatal_error"}) }, token, `{"channel":"#shop","text":"x"}`, "fatal_error"},
		{func() { now = now.Add(-time.Second) }, token, `{"channel":"#busy","text":"1"}`, "1777896015.000007 in "},
		{func() { now = now.Add(-time.Second) }, token, `{"channel":"#busy","text":"2"}`, "1777896015.000008 in "},
		{func() { now = now.Add(-time.Second) }, token, `{"channel":"#busy","text":"3"}`, "1777896015.000009 in "},
		{func() { now = now.Add(-time.Second) }, token, `{"channel":"#busy","text":"4"}`, "ratelimited"},
		{func() { now = now.Add(-time.Second) }, token, `{"channel":"#idle","text":"1"}`, "1777896015.000010 in "},
	} {
		if tt.before != nil {
			tt.before()
		}
		if diff := cmp.Diff(tt.want, call(tt.token, tt.body)); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i+1, diff)
		}
	}
}
