package email

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/scanner-operator/scanner-operator/notifier/internal/messagetest"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// FuzzRender: whatever names an image contains, a mail has its own headers and recipients only, one text and one page with the page's own elements, and
// links lead to the host of an https address of the message. The same message gives the same bytes.
func FuzzRender(f *testing.F) {
	for i, text := range messagetest.Seeds {
		f.Add(text, "https://nvd.nist.gov/vuln/detail/CVE-2026-0001?a=b&c=d", uint8(i))
		f.Add(text, "", uint8(i*7))
	}
	f.Add(strings.Repeat("漢", 200), "https://example.com/"+strings.Repeat("x", 400), uint8(219))
	f.Add(strings.Repeat("<", 60), "https://example.com/"+strings.Repeat("&", 400), uint8(55)) // the longest ones
	f.Add("openssl", "javascript:alert(1)//https://example.com/", uint8(1))
	ref := announce.MailRef{From: "scanner@example.com", To: []string{"team@example.com", "lead@example.org"}}
	headers := map[string]string{
		"From": `"Scanner Operator" <scanner@example.com>`, "To": "<team@example.com>, <lead@example.org>", "Message-Id": "<" + messagetest.ID + "@example.com>",
		"Date": "Mon, 04 May 2026 12:00:00 +0000", "Mime-Version": "1.0", "Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All",
	}
	f.Fuzz(func(t *testing.T, text, address string, number uint8) {
		m := messagetest.Of(text, address, number)
		raw, err := Render(m, ref)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Render(m, ref); err != nil || !bytes.Equal(raw, again) {
			t.Errorf("%q becomes another mail the second time: %v", text, err)
		}
		const maxLine = 998 // https://www.rfc-editor.org/rfc/rfc5322#section-2.1.1
		for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
			if len(line) > maxLine || bytes.ContainsAny(line, "\r\n\x00") {
				t.Errorf("%q becomes a mail with the line %q", text, line)
			}
		}
		read, err := mail.ReadMessage(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%q becomes no mail: %v", text, err)
		}
		got := map[string]string{}
		for name, values := range read.Header {
			got[name] = strings.Join(values, "|")
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(got["Subject"])
		if err != nil || subject == "" || strings.ContainsFunc(subject, unicode.IsControl) {
			t.Errorf("%q becomes the subject %q: %v", text, subject, err)
		}
		kind, parameters, err := mime.ParseMediaType(got["Content-Type"])
		if err != nil || kind != "multipart/alternative" || got["References"] == "" || got["References"] != got["In-Reply-To"] {
			t.Errorf("%q becomes a mail with the headers %q: %v", text, got, err)
		}
		for _, name := range []string{"Subject", "Content-Type", "References", "In-Reply-To"} {
			delete(got, name)
		}
		if diff := cmp.Diff(headers, got); diff != "" {
			t.Errorf("%q becomes a mail with other headers (-want +got):\n%s", text, diff)
		}
		parts := multipart.NewReader(read.Body, parameters["boundary"])
		for _, want := range []string{"text/plain; charset=UTF-8", "text/html; charset=UTF-8"} {
			part, err := parts.NextRawPart()
			if err != nil || part.Header.Get("Content-Type") != want || part.Header.Get("Content-Transfer-Encoding") != "quoted-printable" {
				t.Fatalf("%q becomes a mail without %s: %v", text, want, err)
			}
			content, err := io.ReadAll(quotedprintable.NewReader(part))
			if err != nil || len(content) == 0 {
				t.Fatalf("%q becomes a mail whose %s is %q: %v", text, want, content, err)
			}
			if strings.HasPrefix(want, "text/html") {
				requirePage(t, string(content), address)
			}
		}
		if _, err := parts.NextRawPart(); err != io.EOF {
			t.Errorf("%q becomes a mail with a third part: %v", text, err)
		}
	})
}

// requirePage fails the test if a page has an element or an attribute that the template has not, or links to another host than that of an address.
func requirePage(t *testing.T, page, address string) {
	t.Helper()
	own := map[string]bool{
		"html": true, "head": true, "meta": true, "title": true, "style": true, "body": true, "main": true, "h1": true, "p": true, "strong": true, "code": true, "a": true,
	}
	tokens := html.NewTokenizer(strings.NewReader(page))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return
		case html.CommentToken:
			t.Errorf("the page has the comment %s", tokens.Raw())
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			if !own[token.Data] {
				t.Errorf("the page has the element %s", token)
			}
			for _, attribute := range token.Attr {
				link, err := url.Parse(attribute.Val)
				given, givenErr := url.Parse(address)
				switch {
				case attribute.Key == "href" && (err != nil || givenErr != nil || link.Scheme != "https" || link.User != nil || link.Host != given.Host):
					t.Errorf("the page links to %q, and the address is %q", attribute.Val, address)
				case attribute.Key != "href" && token.Data != "meta" && token.Data != "html" && attribute.Key != "class":
					t.Errorf("the page has the element %s", token)
				}
			}
		}
	}
}
