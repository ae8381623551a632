package standin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func header(n int) string {
	return fmt.Sprintf(`{"type":"header","text":{"type":"plain_text","text":%q}}`, strings.Repeat("é", n))
}

func section(text string) string {
	encoded, _ := json.Marshal(text)
	return fmt.Sprintf(`{"type":"section","text":{"type":"mrkdwn","verbatim":true,"text":%s}}`, encoded)
}

// fields returns a section with n fields of the given length.
func fields(n, length int) string {
	field := fmt.Sprintf(`{"type":"plain_text","text":%q}`, strings.Repeat("x", length))
	return `{"type":"section","fields":[` + strings.Join(repeat(field, n), ",") + `]}`
}

func blocks(all ...string) string { return `{"text":"t","blocks":[` + strings.Join(all, ",") + `]}` }

func repeat(s string, n int) []string { return strings.Split(strings.Repeat(s+"\n", n-1)+s, "\n") }

// Each limit is exact, and each violation has Slack's error code.
func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		payload string
		want    string // the error code, "-" for a violation without one, "" for a valid message
	}{
		"plain text":              {`{"text":"hello"}`, ""},
		"no JSON":                 {`{`, "invalid_payload"},
		"nothing":                 {`{}`, "no_text"},
		"blocks without text":     {`{"blocks":[{"type":"divider"}]}`, "-"},
		"50 blocks":               {blocks(repeat(`{"type":"divider"}`, 50)...), ""},
		"51 blocks":               {blocks(repeat(`{"type":"divider"}`, 51)...), "invalid_blocks"},
		"header of 150":           {blocks(header(150)), ""},
		"header of 151":           {blocks(header(151)), "invalid_blocks"},
		"header without text":     {blocks(`{"type":"header"}`), "invalid_blocks"},
		"header in mrkdwn":        {blocks(`{"type":"header","text":{"type":"mrkdwn","verbatim":true,"text":"x"}}`), "invalid_blocks"},
		"section of 3000":         {blocks(section(strings.Repeat("x", 3000))), ""},
		"section of 3001":         {blocks(section(strings.Repeat("x", 3001))), "invalid_blocks"},
		"empty section":           {blocks(section("")), "invalid_blocks"},
		"section without text":    {blocks(`{"type":"section"}`), "invalid_blocks"},
		"too much in all":         {blocks(repeat(section(strings.Repeat("x", 2700)), 5)...), "msg_blocks_too_long"},
		"context of 10":           {blocks(`{"type":"context","elements":[` + strings.Join(repeat(`{"type":"plain_text","text":"x"}`, 10), ",") + `]}`), ""},
		"context of 11":           {blocks(`{"type":"context","elements":[` + strings.Join(repeat(`{"type":"plain_text","text":"x"}`, 11), ",") + `]}`), "invalid_blocks"},
		"unknown block":           {blocks(`{"type":"confetti"}`), "invalid_blocks"},
		"unknown field":           {blocks(`{"type":"divider","colour":"red"}`), "invalid_blocks"},
		"field of another type":   {blocks(`{"type":"divider","text":{"type":"plain_text","text":"x"}}`), "invalid_blocks"},
		"unknown field of a text": {blocks(`{"type":"header","text":{"type":"plain_text","text":"x","bold":true}}`), "invalid_blocks"},
		"text without a type":     {blocks(`{"type":"header","text":{"text":"x"}}`), "invalid_blocks"},
		"a header's text alone":   {blocks(`{"type":"header","text":"x"}`), "invalid_blocks"},
		"a block that is none":    {blocks(`"header"`), "invalid_blocks"},
		"verbatim plain text":     {blocks(`{"type":"header","text":{"type":"plain_text","text":"x","verbatim":true}}`), "invalid_blocks"},
		"emoji in mrkdwn":         {blocks(`{"type":"section","text":{"type":"mrkdwn","text":"x","verbatim":true,"emoji":true}}`), "invalid_blocks"},
		"10 fields":               {blocks(fields(10, 1)), ""},
		"11 fields":               {blocks(fields(11, 1)), "invalid_blocks"},
		"a field of 2000":         {blocks(fields(1, 2000)), ""},
		"a field of 2001":         {blocks(fields(1, 2001)), "invalid_blocks"},
		"block id of 255":         {blocks(`{"type":"divider","block_id":"` + strings.Repeat("x", 255) + `"}`), ""},
		"block id of 256":         {blocks(`{"type":"divider","block_id":"` + strings.Repeat("x", 256) + `"}`), "invalid_blocks"},
		"same block id":           {blocks(`{"type":"divider","block_id":"a"}`, `{"type":"divider","block_id":"a"}`), "invalid_blocks"},
		"mention of a channel":    {blocks(section("<!channel>")), "-"},
		"mention of a user":       {blocks(section("<@U123>")), "-"},
		"escaped mention":         {blocks(section("&lt;!channel&gt; &amp;")), ""},
		"https link":              {blocks(section("<https://example.com/a?b=1&amp;c=2|CVE-1>")), ""},
		"http link":               {blocks(section("<http://example.com|CVE-1>")), "-"},
		"bare ampersand":          {blocks(section("a & b")), "-"},
		"names become links":      {`{"text":"t","link_names":1}`, "-"},
		"not verbatim":            {blocks(`{"type":"section","text":{"type":"mrkdwn","text":"x"}}`), "-"},
		"text of 40001":           {`{"text":"` + strings.Repeat("x", 40_001) + `"}`, "msg_too_long"},
		"emoji count as two each": {blocks(section(strings.Repeat("😀", 1501))), "invalid_blocks"},
	} {
		got := ""
		if violations := Check([]byte(tt.payload)); len(violations) > 0 {
			got = cmp.Or(violations[0].Error, "-")
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// The server accepts valid messages, rejects invalid ones with Slack's error codes, limits the rate, and fails on demand.
func TestServer(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var printed bytes.Buffer
	s := New(func() time.Time { return now }, &printed)
	webhooks, control := httptest.NewServer(s.Webhooks()), httptest.NewServer(s.Control())
	defer webhooks.Close()
	defer control.Close()
	hook := webhooks.URL + "/services/T/B/x"
	for i, tt := range []struct {
		before func()
		url    string
		body   string
		want   string
	}{
		{nil, hook, blocks(header(3), section("*CVE-1* <https://a.example|here> &lt;b&gt;")), "200 ok"},
		{nil, hook, blocks(header(151)), "400 invalid_blocks"},
		{nil, webhooks.URL + "/elsewhere", `{"text":"x"}`, "404 no_service"},
		{nil, hook, `{"text":"third"}`, "200 ok"},
		{nil, hook, `{"text":"too fast"}`, "429 rate_limited retry 1"},
		{nil, hook + "2", `{"text":"another webhook"}`, "200 ok"},
		{func() { now = now.Add(time.Second) }, hook, `{"text":"in time"}`, "200 ok"},
		{nil, control.URL + "/control", `{"status":500,"times":2}`, "200 ok"},
		{nil, control.URL + "/control", `{"status":429,"retryAfter":7}`, "200 ok"},
		{nil, control.URL + "/control", `{"status":7}`, "400 want a status from 200 to 599, or hang, or drop"},
		{nil, hook, `{"text":"x"}`, "500 rollup_error"},
		{nil, hook, `{"text":"x"}`, "500 rollup_error"},
		{nil, hook, `{"text":"x"}`, "429 rate_limited retry 7"},
		{func() { now = now.Add(time.Second) }, hook, `{"text":"last"}`, "200 ok"},
	} {
		if tt.before != nil {
			tt.before()
		}
		if got := post(t, tt.url, tt.body); got != tt.want {
			t.Errorf("request %d: %q, want %q", i+1, got, tt.want)
		}
	}
	messages := s.Messages()
	if len(messages) != 6 {
		t.Fatalf("%d messages are remembered, want 6: %+v", len(messages), messages)
	}
	if want := "ééé\n\nCVE-1 here <b>"; messages[0].Text != want || len(messages[0].Violations) != 0 {
		t.Errorf("first message %q with violations %v, want %q and none", messages[0].Text, messages[0].Violations, want)
	}
	if len(messages[1].Violations) != 1 || !strings.Contains(printed.String(), "VIOLATION invalid_blocks") {
		t.Errorf("the second message's violations are %v, want one, also printed", messages[1].Violations)
	}
	var listed []Message
	response, err := http.Get(control.URL + "/messages")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&listed); err != nil || len(listed) != len(messages) {
		t.Errorf("GET /messages lists %d with error %v, want %d", len(listed), err, len(messages))
	}
}

// A message whose connection is dropped counts as accepted.
func TestLostAnswer(t *testing.T) {
	s := New(time.Now, io.Discard)
	webhooks := httptest.NewServer(s.Webhooks())
	defer webhooks.Close()
	s.Expect(Failure{Drop: true})
	if _, err := http.Post(webhooks.URL+"/services/x", "application/json", strings.NewReader(`{"text":"x"}`)); err == nil {
		t.Error("there was an answer, want none")
	}
	if m := s.Messages(); len(m) != 1 || m[0].Answered {
		t.Errorf("messages %+v, want one, not answered", m)
	}
}

// post returns status, body and Retry-After.
func post(t *testing.T, url, body string) string {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %s", response.StatusCode, text)
	if after := response.Header.Get("Retry-After"); after != "" {
		got += " retry " + after
	}
	return got
}
