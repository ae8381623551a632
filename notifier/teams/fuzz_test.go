package teams

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/notifier/internal/messagetest"
)

// FuzzCard: whatever names an image contains, a card is within the limit of Teams, has only text in runs, no line has a break in it, and links lead to the
// host of an https address of the message. Without an address, there is no link.
func FuzzCard(f *testing.F) {
	for i, text := range messagetest.Seeds {
		f.Add(text, "https://nvd.nist.gov/vuln/detail/CVE-2026-0001?a=b&c=d", uint8(i))
		f.Add(text, "", uint8(i*7))
	}
	f.Add(strings.Repeat("漢", 200), "https://example.com/"+strings.Repeat("x", 400), uint8(219))
	f.Add(strings.Repeat("<", 60), "https://example.com/"+strings.Repeat("&", 400), uint8(55)) // the longest ones
	f.Add("openssl", "javascript:alert(1)//https://example.com/", uint8(1))
	f.Fuzz(func(t *testing.T, text, address string, number uint8) {
		body, err := Render(messagetest.Of(text, address, number))
		if err != nil {
			t.Fatal(err)
		}
		var p payload
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil || len(p.Attachments) != 1 || len(escaped(t, body)) > teamsLimit || !utf8.Valid(body) {
			t.Fatalf("%q becomes %d bytes with %d cards: %v", text, len(body), len(p.Attachments), err)
		}
		if c := p.Attachments[0].Content; c.Type != "AdaptiveCard" || c.FallbackText == "" || len(c.Body) < 2 {
			t.Errorf("%q becomes the card %+v, want a title and a sender at least", text, c)
		}
		for _, block := range p.Attachments[0].Content.Body {
			if block.Type != "RichTextBlock" || len(block.Inlines) == 0 {
				t.Errorf("%q becomes the block %+v", text, block)
			}
			for _, r := range block.Inlines {
				if r.Type != "TextRun" || r.Text == "" || strings.ContainsFunc(r.Text, unicode.IsControl) {
					t.Errorf("%q becomes the run %+v", text, r)
				}
				if r.SelectAction == nil {
					continue
				}
				link, err := url.Parse(r.SelectAction.URL)
				given, givenErr := url.Parse(address)
				if err != nil || givenErr != nil || r.SelectAction.Type != "Action.OpenUrl" || link.Scheme != "https" || link.User != nil || link.Host != given.Host {
					t.Errorf("%q and %q become a link to %+v", text, address, r.SelectAction)
				}
			}
		}
	})
}
