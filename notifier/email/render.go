package email

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// senderName is shown beside the sender's address.
const senderName = "Scanner Operator"

//go:embed mail.html
var page string

var pageTemplate = template.Must(template.New("mail").Parse(page))

// Render returns a message in the Internet Message Format (https://www.rfc-editor.org/rfc/rfc5322), as plain text and as HTML. The words and the
// bounds are those of Slack's message. It returns the same bytes for the same message: the Message-ID has the message's ID, and the headers
// References and In-Reply-To are the same for all messages of a Scanner, so that mail programs show them together.
func Render(m announce.Message, to announce.MailRef) ([]byte, error) {
	lines := slack.Lines(slack.Render(m))
	html := &bytes.Buffer{}
	err := pageTemplate.Execute(html, struct {
		Title string
		Lines []slack.Line
	}{slack.Title(m), lines})
	if err != nil {
		return nil, fmt.Errorf("HTML: %w", err)
	}
	_, domain, _ := strings.Cut(to.From, "@")
	conversation := "<" + digits(m.ScannerKind, m.Namespace, m.Scanner) + "@" + domain + ">"

	mail := gomail.NewMsg(gomail.WithNoDefaultUserAgent(), gomail.WithBoundary(digits("boundary", m.ID)))
	if err := mail.FromFormat(senderName, to.From); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if err := mail.To(to.To...); err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	mail.Subject(slack.Title(m))
	mail.SetDateWithValue(m.CreatedAt)
	mail.SetMessageIDWithValue(m.ID + "@" + domain)
	for name, value := range map[gomail.Header]string{
		gomail.HeaderReferences: conversation, gomail.HeaderInReplyTo: conversation,
		// No program answers such a message with a notice of absence (https://www.rfc-editor.org/rfc/rfc3834, and Exchange's own header).
		"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All",
	} {
		mail.SetGenHeader(name, value)
	}
	mail.SetBodyString(gomail.TypeTextPlain, plainText(lines))
	mail.AddAlternativeString(gomail.TypeTextHTML, html.String())
	raw := &bytes.Buffer{}
	if _, err := mail.WriteTo(raw); err != nil {
		return nil, err
	}
	return raw.Bytes(), nil
}

// plainText returns lines as plain text, with each address behind the text that links to it.
func plainText(lines []slack.Line) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 && l.IsFirst {
			b.WriteString("\n")
		}
		for _, r := range l.Runs {
			b.WriteString(r.Text)
			if r.URL != "" {
				fmt.Fprintf(&b, " <%s>", r.URL)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// digits returns 32 hexadecimal digits that are the same for the same texts.
func digits(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
