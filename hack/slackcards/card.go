package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Sizes of a card in pixels: the width of a phone, and the positions of the elements that Slack shows around a message.
const (
	cardWidth  = 480
	padding    = 16
	avatar     = 36
	textLeft   = padding + avatar + 10
	textWidth  = cardWidth - textLeft - padding
	nameHeight = 22
	blockGap   = 10
)

// textStyle is the text style of a block type.
type textStyle struct {
	size, lineHeight float64
	colour           string
}

var textStyles = map[string]textStyle{
	"header":  {size: 17, lineHeight: 24, colour: "#1d1c1d"},
	"section": {size: 14, lineHeight: 20, colour: "#1d1c1d"},
	"context": {size: 12, lineHeight: 17, colour: "#616061"},
}

// Colours of Slack's links and code.
const (
	linkColour = "#1264a3"
	codeColour = "#c01343"
	lineColour = "#dddddd"
)

// codeFactor and appFactor are font sizes relative to the surrounding text: of code, and of the word APP beside the sender's name.
const (
	codeFactor = 0.88
	appFactor  = 0.75
)

// fontFamily are Helvetica, fonts of the same widths, and one that is nearly as narrow.
const fontFamily = "Helvetica, Arial, Liberation Sans, Arimo, DejaVu Sans Condensed, sans-serif"

// card is a drawing that is built from top to bottom.
type card struct {
	body strings.Builder
	y    float64
}

// draw returns a message as SVG.
func draw(m message) (string, error) {
	c := &card{y: padding}
	c.sender()
	for _, b := range m.Blocks {
		lk, known := textStyles[b.Type]
		switch {
		case b.Type == "divider":
			c.y += blockGap + 4
			fmt.Fprintf(&c.body, `<path d="M%d %.1fH%d" stroke="%s"/>`+"\n", textLeft, c.y, cardWidth-padding, lineColour)
		case !known:
			return "", fmt.Errorf("nobody has said how a block of type %q looks", b.Type)
		default:
			c.y += blockGap
			c.text(b.Text.Text, b.Type, lk)
			for _, e := range b.Elements {
				c.text(e.Text, b.Type, lk)
			}
		}
	}
	// Rounding once keeps the lower border inside of the picture: half a line is not a whole number of pixels.
	height := int(math.Ceil(c.y + padding))
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="%s">
<title>%s</title>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#ffffff" stroke="%s"/>
%s</svg>
`, cardWidth, height, cardWidth, height, fontFamily, html.EscapeString(html.UnescapeString(m.Text)), cardWidth-1, height-1, lineColour, c.body.String()), nil
}

// sender draws the app that the webhook belongs to.
func (c *card) sender() {
	fmt.Fprintf(&c.body, `<rect x="%d" y="%.1f" width="%d" height="%d" rx="6" fill="#2f5d8a"/>`+"\n", padding, c.y, avatar, avatar)
	fmt.Fprintf(&c.body, `<circle cx="%d" cy="%.1f" r="8" fill="none" stroke="#ffffff" stroke-width="3"/><path d="M%d %.1fl7 7" stroke="#ffffff" stroke-width="3"/>`+"\n",
		padding+16, c.y+16, padding+22, c.y+22)
	c.y += 14
	c.line([]run{{text: "Scanner Operator", style: style{bold: true}}, {text: "  APP", style: style{faint: true}}}, textStyles["section"])
	c.y += nameHeight - 14
}

// text draws a text in lines that fit. The text of a header is plain, all others are mrkdwn.
func (c *card) text(s, kind string, lk textStyle) {
	runs := parse(s)
	if kind == "header" {
		runs = []run{{text: s, style: style{bold: true}}}
	}
	for _, line := range wrap(runs, lk.size, textWidth/spare) {
		if len(line) == 0 {
			c.y += lk.lineHeight / 2
			continue
		}
		c.y += lk.lineHeight
		c.line(line, lk)
	}
}

// line draws runs one after the other.
func (c *card) line(runs []run, lk textStyle) {
	x := float64(textLeft)
	for len(runs) > 0 {
		if first := runs[0]; first.style.mark {
			c.mark(first.text, x, c.y, lk.size)
			x += width(first.text, first.style, lk.size)
			runs = runs[1:]
			continue
		}
		length := slices.IndexFunc(runs, func(r run) bool { return r.style.mark })
		if length < 0 {
			length = len(runs)
		}
		x += c.words(runs[:length], x, lk)
		runs = runs[length:]
	}
}

// words draws runs without marks and returns their width. The viewer fits the text into this width, whatever its font is.
func (c *card) words(runs []run, x float64, lk textStyle) float64 {
	total := 0.0
	var spans strings.Builder
	for _, r := range runs {
		total += width(r.text, r.style, lk.size)
		fmt.Fprintf(&spans, `<tspan%s>%s</tspan>`, attributes(r.style, lk.size), html.EscapeString(r.text))
	}
	fmt.Fprintf(&c.body, `<text x="%.1f" y="%.1f" font-size="%.1f" fill="%s" textLength="%.1f" lengthAdjust="spacingAndGlyphs" xml:space="preserve">%s</text>`+"\n",
		x, c.y, lk.size, lk.colour, total, spans.String())
	return total
}

func attributes(st style, size float64) string {
	text := ""
	if st.bold {
		text += ` font-weight="bold"`
	}
	switch {
	case st.link:
		text += ` fill="` + linkColour + `"`
	case st.code:
		text += fmt.Sprintf(` fill="%s" font-family="Menlo, Consolas, monospace" font-size="%.1f"`, codeColour, size*codeFactor)
	case st.faint:
		text += fmt.Sprintf(` fill="%s" font-size="%.1f"`, textStyles["context"].colour, size*appFactor)
	}
	return text
}
