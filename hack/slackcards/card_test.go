package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
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
		"a mark":        {"aaaa aaa 🟥\u00a01 bb", []string{"aaaa aaa ", "🟥\u00a01 bb"}},
		"change inside": {"aaaa *bbbb cccc*", []string{"aaaa bbbb ", "cccc"}},
	} {
		var got []string
		for _, line := range wrap(parse(tt.text), 10, 10.5*anyWidth/100) {
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

// drawing is the part of an SVG that the tests of positions read.
type drawing struct {
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Rects  []struct {
		Y      float64 `xml:"y,attr"`
		Height float64 `xml:"height,attr"`
	} `xml:"rect"`
	Texts []struct {
		X            float64  `xml:"x,attr"`
		Length       string   `xml:"textLength,attr"`
		LengthAdjust string   `xml:"lengthAdjust,attr"`
		Spans        []string `xml:"tspan"`
	} `xml:"text"`
}

func drawn(t *testing.T, blocks ...block) (d drawing) {
	t.Helper()
	svg, err := draw(message{Text: "a title", Blocks: blocks})
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(svg), &d); err != nil {
		t.Fatalf("%v in\n%s", err, svg)
	}
	return d
}

// The lower border is inside of the picture, also where half a line makes the height a fraction.
func TestBorderIsInside(t *testing.T) {
	for name, s := range map[string]string{"whole": "a", "half a line": "a\n\nb", "two halves": "a\n\nb\n\nc"} {
		d := drawn(t, block{Type: "context", Elements: []text{{s}}})
		const halfStroke = 0.5
		if border := d.Rects[0].Y + d.Rects[0].Height + halfStroke; border > d.Height {
			t.Errorf("%s: the border ends at %.1f, the picture at %.1f", name, border, d.Height)
		}
	}
}

// Each text has the width that its position was computed with, so that no font overlaps the mark after it or leaves the card.
func TestTextHasItsWidth(t *testing.T) {
	d := drawn(t, block{Type: "section", Text: text{"🚨 1\u00a0known exploited · 🟥 *4* `code` :warning: " + strings.Repeat("mmm ", 60)}})
	if len(d.Texts) < 5 {
		t.Fatalf("expected the sender, texts between marks, and several lines, got %+v", d.Texts)
	}
	for _, text := range d.Texts {
		length, err := strconv.ParseFloat(text.Length, 64)
		if err != nil || text.LengthAdjust != "spacingAndGlyphs" {
			t.Errorf("%q: textLength %q, lengthAdjust %q", text.Spans, text.Length, text.LengthAdjust)
		}
		if end := text.X + length; end > d.Width-padding {
			t.Errorf("%q ends at %.1f, beyond the padding of a card of %.1f", text.Spans, end, d.Width)
		}
	}
	first, second := d.Texts[1], d.Texts[2]
	if length, _ := strconv.ParseFloat(first.Length, 64); first.X+length > second.X {
		t.Errorf("%q overlaps %q", first.Spans, second.Spans)
	}
}
