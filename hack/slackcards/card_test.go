package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Bold text, links, code, emoji and entities are parsed as Slack parses them.
func TestParse(t *testing.T) {
	got := parse("• *<https://a.example/?a=1&amp;b=2|CVE-1>* High\n`a *b* &lt;c&gt;` *d* :warning:")
	want := []run{
		{text: "• "}, {text: "CVE-1", style: style{bold: true, link: true}}, {text: " High"}, {text: "\n"},
		{text: "a *b* <c>", style: style{code: true}}, {text: " "}, {text: "d", style: style{bold: true}}, {text: " "}, {text: "⚠", style: style{mark: true}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(run{}, style{})); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// Lines break at spaces, and within a word only if the word is longer than a line.
func TestWrap(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"short":         {"a b", []string{"a b"}},
		"two lines":     {"aaaa bbbb cccc", []string{"aaaa bbbb ", "cccc"}},
		"a line break":  {"a\n\nb", []string{"a", "", "b"}},
		"a long word":   {"a " + strings.Repeat("é", 20), []string{"a ", strings.Repeat("é", 10), strings.Repeat("é", 10)}},
		"change inside": {"aaaa *bbbb cccc*", []string{"aaaa bbbb ", "cccc"}},
	} {
		var got []string
		for _, line := range wrap(parse(tt.text), 10, 10.5*anyWidth/100*spare) {
			text := ""
			for _, r := range line {
				text += r.text
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A drawing is XML that contains all text of the message and no mrkdwn marks.
func TestDraw(t *testing.T) {
	m := message{Text: "a &amp; b", Blocks: []block{{Type: "section", Text: text{"*A* &lt;b&gt; `c`"}}}}
	svg, err := draw(m)
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if data, isText := token.(xml.CharData); isText {
			shown.Write(data)
		}
	}
	for _, want := range []string{"a & b", "Scanner Operator", "A <b> c"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("the picture lacks %q, its text is %q", want, shown.String())
		}
	}
	m.Blocks[0].Type = "confetti"
	if _, err := draw(m); err == nil {
		t.Error("a block of an unknown type was drawn")
	}
}
