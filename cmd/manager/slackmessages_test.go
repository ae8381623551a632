package main

import (
	"strings"
	"testing"
)

// TestRenderSlack: a stored message becomes the blocks that Slack shows, and a text that is no message is refused.
func TestRenderSlack(t *testing.T) {
	rendered, err := renderSlack([]byte(`{"id":"1","kind":"FirstScan","namespace":"shop","scanner":"default"}`))
	if err != nil {
		t.Fatal(err)
	}
	if rendered.Text == "" || !strings.Contains(string(rendered.Blocks), `{"type":"header","text":{"type":"plain_text"`) ||
		!strings.Contains(string(rendered.Blocks), "namespace shop") {
		t.Errorf("rendered as %q: %s", rendered.Text, rendered.Blocks)
	}
	if _, err := renderSlack([]byte(`[]`)); err == nil {
		t.Error("a list is accepted as a message")
	}
}
