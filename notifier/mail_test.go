package notifier_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

const (
	mailUser     = "robot@example.com"
	mailPassword = "verysecretpassword8"
	mailFrom     = "scanner@example.com"
)

// mailRef returns the reference to a mail server. One without TLS requires no password.
func mailRef(server string) announce.ReceiverRef {
	u := must(url.Parse(server))
	ref := announce.ReceiverRef{Namespace: "shop", SecretName: "team", SecretKey: "password", Mail: &announce.MailRef{
		Server: u.Host, TLS: announce.MailStartTLS, From: mailFrom, To: []string{"team@example.com", "o'neil+scans@example.org"},
	}}
	if u.Scheme == "smtp" {
		ref.Mail.TLS, ref.SecretName, ref.SecretKey = announce.MailWithoutTLS, "", ""
	}
	return ref
}

// newMailServer returns a mail server, with STARTTLS and a password unless it is plain.
func newMailServer(t testing.TB, plain bool) *server {
	t.Helper()
	// The certificate is that of the other receivers' servers.
	other := httptest.NewTLSServer(nil)
	other.Close()
	s := &server{URL: "smtps://", certificate: other.Certificate()}
	config := &tls.Config{Certificates: other.TLS.Certificates}
	if plain {
		s.URL, s.certificate, config = "smtp://", nil, nil
	}
	host, stop := serveMail(t, s, config, false, func(*mailSession) {})
	s.URL, s.stop = s.URL+host, stop
	return s
}

// serveMail runs a mail server that records its messages in s. It has STARTTLS, or with implicit TLS from the start.
func serveMail(t testing.TB, s *server, config *tls.Config, implicit bool, change func(*mailSession)) (host string, stop func()) {
	t.Helper()
	backend := smtp.NewServer(nil)
	backend.Backend = smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		session := &mailSession{server: s, conn: c, mechanisms: []string{sasl.Plain}}
		if config == nil {
			session.mechanisms = nil
		}
		change(session)
		return session, nil
	})
	backend.Domain, backend.TLSConfig, backend.ErrorLog = "localhost", config, quiet{}
	backend.MaxLineLength = 1000 // with the end of the line, as RFC 5321 allows
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	if config != nil && config.ClientAuth == tls.RequireAndVerifyClientCert {
		listener = lingering{listener}
	}
	if implicit {
		listener = tls.NewListener(listener, config)
	}
	go func() { _ = backend.Serve(listener) }()
	stop = func() { _, _ = listener.Close(), backend.Close() }
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// mailSession is a connection to the mail server.
type mailSession struct {
	server     *server
	conn       *smtp.Conn
	mechanisms []string
	// isGenuine is true once the client has presented the right password.
	isGenuine bool
	envelope  []string
	// accept decides about a message; nil accepts it.
	accept func() error
}

func (m *mailSession) Reset()        { m.envelope = nil }
func (m *mailSession) Logout() error { return nil }

func (m *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	if len(m.mechanisms) > 0 && !m.isGenuine {
		return smtp.ErrAuthRequired
	}
	m.envelope = []string{from}
	return nil
}

func (m *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	m.envelope = append(m.envelope, to)
	return nil
}

func (m *mailSession) Data(r io.Reader) (answer error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if m.accept != nil {
		defer func() { answer = m.accept() }()
	}
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.server.requests = append(m.server.requests, request{path: strings.Join(m.envelope, " "), body: body})
	if m.server.isSilent {
		_ = m.conn.Conn().Close()
	}
	return nil
}

func (m *mailSession) AuthMechanisms() []string { return m.mechanisms }

func (m *mailSession) Auth(mechanism string) (sasl.Server, error) {
	check := func(username, password string) error {
		if username != mailUser || password != mailPassword {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no " + password}
		}
		m.isGenuine = true
		return nil
	}
	if mechanism == "XOAUTH2" {
		return &tokenServer{check: check}, nil
	}
	if mechanism == sasl.Login {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, username, password string) error { return check(username, password) }), nil
}

// loginServer is the mechanism LOGIN, of which go-sasl has only the client's side.
type loginServer struct {
	check    func(username, password string) error
	answers  []string
	prompted int
}

func (l *loginServer) Next(answer []byte) (challenge []byte, done bool, err error) {
	if l.prompted > 0 {
		l.answers = append(l.answers, string(answer))
	}
	if len(l.answers) == 2 {
		return nil, true, l.check(l.answers[0], l.answers[1])
	}
	l.prompted++
	return []byte([]string{"Username:", "Password:"}[l.prompted-1]), false, nil
}

// tokenServer is the mechanism XOAUTH2. The token is mailPassword.
type tokenServer struct {
	check func(username, password string) error
	// refusal is what the server says after the client's answer to the reason in JSON.
	refusal error
}

func (s *tokenServer) Next(answer []byte) (challenge []byte, done bool, err error) {
	if s.refusal != nil {
		if len(answer) > 0 {
			return nil, true, errors.New("the answer to the reason is not empty")
		}
		return nil, true, s.refusal
	}
	username, token, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(string(answer), "user="), "\x01\x01"), "\x01auth=Bearer ")
	if s.refusal = s.check(username, token); s.refusal == nil {
		return nil, true, nil
	}
	return []byte(`{"status":"401","schemes":"bearer","scope":"` + token + `"}`), false, nil
}

// checkMail checks that a mail has the known headers, text and HTML, and that its HTML has only text and links.
func checkMail(t testing.TB, r request, d announce.Delivery) {
	t.Helper()
	to := d.Receiver.Mail.To
	if want := strings.Join(append([]string{mailFrom}, to...), " "); r.path != want {
		t.Errorf("envelope %q, want %q", r.path, want)
	}
	message, err := mail.ReadMessage(bytes.NewReader(r.body))
	if err != nil {
		t.Fatalf("not a mail: %v\n%s", err, r.body)
	}
	want := []string{
		"Auto-Submitted", "Content-Type", "Date", "From", "In-Reply-To", "Message-Id", "Mime-Version", "References", "Subject", "To", "X-Auto-Response-Suppress",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(message.Header))); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if id := message.Header.Get("Message-Id"); id != "<"+d.Message.ID+"@example.com>" {
		t.Errorf("Message-ID %s, want the message's ID", id)
	}
	subject := must(new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject")))
	if subject == "" || len(subject) > 150 || strings.ContainsAny(subject, "\r\n\x00\u202e") {
		t.Errorf("subject %q", subject)
	}
	for _, line := range strings.Split(string(r.body), "\n") {
		if len(line) > 999 || !strings.HasSuffix(line, "\r") && line != "" {
			t.Errorf("a line has %d characters, or ends without CR: %q", len(line), line)
		}
	}
	kind, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("type %s, error %v", kind, err)
	}
	parts := multipart.NewReader(message.Body, parameters["boundary"])
	texts := map[string]string{}
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[part.Header.Get("Content-Type")] = string(must(io.ReadAll(quotedprintable.NewReader(part))))
	}
	const plain, rich = "text/plain; charset=UTF-8", "text/html; charset=UTF-8"
	if len(texts) != 2 || strings.TrimSpace(texts[plain]) == "" {
		t.Fatalf("parts %v", slices.Collect(maps.Keys(texts)))
	}
	checkHTML(t, texts[rich])
}

// checkHTML checks that a page has the elements and attributes of the template, and links to https only.
func checkHTML(t testing.TB, page string) {
	t.Helper()
	elements := []string{"html", "head", "meta", "title", "style", "body", "main", "h1", "p", "a", "strong", "code"}
	attributes := []string{"lang", "charset", "name", "content", "class", "href"}
	for node := range must(html.Parse(strings.NewReader(page))).Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(elements, node.Data) {
			t.Errorf("the element %s", node.Data)
		}
		for _, attribute := range node.Attr {
			if !slices.Contains(attributes, attribute.Key) || attribute.Key == "href" && !strings.HasPrefix(attribute.Val, "https://") {
				t.Errorf("%s has the attribute %s=%q", node.Data, attribute.Key, attribute.Val)
			}
		}
	}
}

// newMailContract returns a notifier with a receiver whose mail server is not one of forEachType, and waits as long as the deadline.
func newMailContract(t *testing.T, s *server, deadline time.Duration) *contract {
	t.Helper()
	hosts := []string{s.host()}
	if strings.HasPrefix(s.URL, "smtp:") {
		hosts = []string{s.URL}
	}
	return newContractWithin(t, announce.ReceiverTypeEmail, s, deadline, hosts...)
}

// script is a mail server without TLS that gives one answer after the other, whatever it gets. After 354 it reads a message first. At the end it
// closes the connection, or waits if the last answer is "...".
func script(t *testing.T, answers ...string) *server {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		lines := bufio.NewReader(conn)
		for _, answer := range answers {
			if answer == "..." {
				_, _ = io.Copy(io.Discard, lines)
				return
			}
			if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
				return
			}
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.HasPrefix(answer, "354") || line == ".\r\n" {
					break
				}
			}
		}
	}()
	return &server{URL: "smtp://" + listener.Addr().String()}
}

// TestMailOutcomes: what a mail server's answers mean for the message.
func TestMailOutcomes(t *testing.T) {
	delivered := announce.Outcome{Result: announce.Delivered}
	refused := announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}
	failed := announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed}
	network := announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNetwork}
	lost := announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	partly := announce.Outcome{Result: announce.Delivered, Reason: announce.ReasonRecipientsRefused}
	const greeting, ok, data = "220 mail.example.com", "250 ok", "354 go ahead"
	for name, tt := range map[string]struct {
		answers []string
		want    announce.Outcome
		says    string
	}{
		"accepted":                     {[]string{greeting, ok, ok, ok, ok, data, ok, "221 bye"}, delivered, ""},
		"accepted, no answer to QUIT":  {[]string{greeting, ok, ok, ok, ok, data, ok}, delivered, ""},
		"not now":                      {[]string{"421 4.3.2 shutting down"}, failed, "answers 421 4.3.2 to the connection: shutting down"},
		"never":                        {[]string{"554 5.7.1 listed"}, refused, "answers 554 5.7.1 to the connection: listed"},
		"EHLO is refused":              {[]string{greeting, "550 who", "550 who"}, refused, "answers 550 to EHLO example.com: who"},
		"the sender is refused":        {[]string{greeting, ok, "550 5.7.60 not allowed"}, refused, "5.7.60 to MAIL FROM: not allowed; the server must let the notifier send as " + mailFrom},
		"the sender is throttled":      {[]string{greeting, ok, "451 4.7.1 slow down"}, failed, "answers 451 4.7.1 to MAIL FROM: slow down"},
		"a recipient is refused":       {[]string{greeting, ok, ok, "550 5.1.1 no", ok, data, ok}, partly, "for 1 of 2 recipients, and refused team@example.com (550 5.1.1); correct"},
		"the last recipient refused":   {[]string{greeting, ok, ok, ok, "550 no", data, ok}, partly, "refused o'neil+scans@example.org (550); correct"},
		"all recipients are refused":   {[]string{greeting, ok, ok, "550 5.1.1 no", "553 5.1.3 no", ok}, refused, "answers 553 5.1.3 to RCPT TO o'neil+scans@example.org"},
		"a recipient is grey-listed":   {[]string{greeting, ok, ok, ok, "450 4.7.1 later", data, ok}, partly, "refused o'neil+scans@example.org (450 4.7.1); an answer of 4xx is for now"},
		"one recipient at once":        {[]string{greeting, ok, ok, ok, "452 4.5.3 too many", data, ok, ok, ok, data, ok}, delivered, ""},
		"one domain at once":           {[]string{greeting, ok, ok, "451 4.3.0 other domain", ok, data, ok, ok, ok, data, ok}, delivered, ""},
		"still grey-listed":            {[]string{greeting, ok, ok, ok, "450 4.7.1 later", data, ok, ok, "450 4.7.1 later"}, partly, "for 1 of 2 recipients, and refused o'neil+scans@example.org (450 4.7.1); an answer of 4xx is for now"},
		"the second copy is refused":   {[]string{greeting, ok, ok, ok, "452 4.5.3 too many", data, ok, ok, ok, data, "554 no"}, partly, "for 1 of 2 recipients, and refused o'neil+scans@example.org (452 4.5.3)"},
		"every recipient is named":     {[]string{greeting, ok, ok, "550 5.1.1 no", "553 5.1.3 no"}, refused, "refused are team@example.com (550 5.1.1), o'neil+scans@example.org (553 5.1.3)"},
		"a mailbox is full":            {[]string{greeting, ok, ok, "452 4.2.2 full", ok, data, ok}, partly, "refused team@example.com (452 4.2.2); the mailbox takes no mail, or is full"},
		"a domain does not exist":      {[]string{greeting, ok, ok, "450 4.1.2 <x@y>: Domain not found", ok, data, ok}, partly, "(450 4.1.2); check the domain of the recipient"},
		"all refused, one for now":     {[]string{greeting, ok, ok, "450 4.7.1 later", "550 5.1.1 no", ok}, failed, "answers 450 4.7.1 to RCPT TO team@example.com: later"},
		"the server closes":            {[]string{greeting, ok, ok, ok, "421 4.3.2 shutting down"}, failed, "answers 421 4.3.2 to RCPT TO o'neil+scans@example.org"},
		"it closes before the sender":  {[]string{greeting, ok, "421 4.4.2 idle for too long"}, failed, "answers 421 4.4.2 to MAIL FROM"},
		"it closes after a refusal":    {[]string{greeting, ok, ok, "550 5.1.1 no", "421 4.3.2 shutting down"}, failed, "answers 421 4.3.2 to RCPT TO o'neil+scans@example.org"},
		"it closes before the message": {[]string{greeting, ok, ok, ok, ok, "421 4.3.2 shutting down"}, failed, "answers 421 4.3.2 to DATA"},
		"it closes with the message":   {[]string{greeting, ok, ok, ok, ok, data, "421 4.3.2 shutting down"}, failed, "answers 421 4.3.2 to the message"},
		"it closes after one message":  {[]string{greeting, ok, ok, ok, "452 4.5.3 too many", data, ok, "421 4.3.2 shutting down"}, partly, "for 1 of 2 recipients, and refused o'neil+scans@example.org (452 4.5.3)"},
		"the name is refused":          {[]string{greeting, ok, ok, "504 5.5.2 <x>: Helo command rejected: need fully-qualified hostname", "504 5.5.2 <x>: Helo command rejected: need fully-qualified hostname"}, refused, "does not take example.com as the notifier's name in EHLO: set helo"},
		"a password is needed":         {[]string{greeting, ok, "530 5.7.57 Client not authenticated to send mail"}, refused, "the server requires a user: set secretRef"},
		"TLS is needed":                {[]string{greeting, ok, "530 5.7.0 Must issue a STARTTLS command first"}, refused, "the server requires TLS: set tls"},
		"the sender's domain":          {[]string{greeting, ok, "553 5.1.8 no such domain"}, refused, "the domain of the sender scanner@example.com does not exist"},
		"DATA is refused":              {[]string{greeting, ok, ok, ok, ok, "554 5.5.1 no"}, refused, "answers 554 5.5.1 to DATA"},
		"the message is too large":     {[]string{greeting, ok, ok, ok, ok, data, "552 5.3.4 too big"}, refused, "answers 552 5.3.4 to the message: too big; the message has 3 KiB"},
		"the message is spam":          {[]string{greeting, ok, ok, ok, ok, data, "554 5.7.1 spam"}, refused, "to the message: spam"},
		"the disk is full":             {[]string{greeting, ok, ok, ok, ok, data, "452 4.3.1 no space"}, failed, "answers 452 4.3.1 to the message: no space"},
		"no answer to the message":     {[]string{greeting, ok, ok, ok, ok, data, "..."}, lost, "answer was lost: no answer in time"},
		"cut off after the message":    {[]string{greeting, ok, ok, ok, ok, data}, lost, "answer was lost"},
		"nonsense after the message":   {[]string{greeting, ok, ok, ok, ok, data, "<html>"}, lost, "answer was lost: the server does not speak SMTP"},
		"no answer to DATA":            {[]string{greeting, ok, ok, ok, ok, "..."}, network, "no answer in time"},
		"no greeting":                  {[]string{"..."}, network, "no answer in time"},
		"cut off":                      {nil, network, "EOF"},
		"HTTP":                         {[]string{"HTTP/1.1 400 Bad Request"}, network, "does not speak SMTP"},
		"an endless line":              {[]string{"220 " + strings.Repeat("x", 2<<20)}, network, "sends too much"},
		"endless lines":                {[]string{strings.Repeat("220-x\r\n", 1<<18)}, network, "sends too much"},
		"words that are not plain":     {[]string{greeting, "550 5.7.1 see <html>http://example.com/?p=" + mailPassword, "550 no"}, refused, "answers 550"},
		"STARTTLS although None":       {[]string{greeting, "250-hi\r\n250 STARTTLS", ok, ok, ok, data, ok}, delivered, ""},
		"an answer of several lines":   {[]string{greeting, ok, "550-5.7.1 one\r\n550 5.7.1 two"}, refused, "answers 550 5.7.1 to MAIL FROM: one; "},
		"a code that does not exist":   {[]string{greeting, ok, "999 what"}, refused, "answers 999"},
		"success that is none":         {[]string{greeting, ok, ok, ok, ok, data, "354 more"}, failed, "answers 354"},
		"a redirect (551 of RFC 5321)": {[]string{greeting, ok, ok, "551 5.1.6 try other", "551 5.1.6 try other"}, refused, "answers 551 5.1.6"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMailContract(t, script(t, tt.answers...), deadlineOf(tt.says))
			got := c.deliver(delivery("1").Message)
			if !strings.Contains(got.Message, tt.says) {
				t.Errorf("message %q, want in it %q", got.Message, tt.says)
			}
			got.Message = ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMailTLS: a password and a message are sent only to a server that the notifier trusts, over TLS.
func TestMailTLS(t *testing.T) {
	for name, tt := range map[string]struct {
		tls announce.MailTLS
		// expired is true for a certificate whose time is over. implicit has the server use TLS from the start. plain has it offer no TLS.
		expired, implicit, plain bool
		mechanisms               []string
		secret                   map[string]string
		reason, says             string
	}{
		"STARTTLS":                   {tls: announce.MailStartTLS, mechanisms: []string{"PLAIN"}},
		"from the start":             {tls: announce.MailImplicitTLS, implicit: true, mechanisms: []string{"PLAIN"}},
		"LOGIN":                      {tls: announce.MailStartTLS, mechanisms: []string{"CRAM-MD5", "LOGIN"}},
		"an expired certificate":     {tls: announce.MailStartTLS, expired: true, reason: announce.ReasonNetwork, says: "certificate has expired"},
		"expired, from the start":    {tls: announce.MailImplicitTLS, implicit: true, expired: true, reason: announce.ReasonNetwork, says: "certificate has expired"},
		"STARTTLS is not offered":    {tls: announce.MailStartTLS, plain: true, reason: announce.ReasonReceiverRefused, says: "does not offer STARTTLS"},
		"no TLS at the start":        {tls: announce.MailImplicitTLS, reason: announce.ReasonNetwork, says: "first record does not look like a TLS handshake"},
		"no password is wanted":      {tls: announce.MailStartTLS, reason: announce.ReasonReceiverRefused, says: "none of the ways to authenticate"},
		"only unknown ways":          {tls: announce.MailStartTLS, mechanisms: []string{"GSSAPI"}, reason: announce.ReasonReceiverRefused, says: "none of the ways to authenticate"},
		"a wrong password":           {tls: announce.MailStartTLS, mechanisms: []string{"PLAIN"}, secret: map[string]string{"password": "verysecretpassword9"}, reason: announce.ReasonReceiverRefused, says: "answers 535 5.7.8 to AUTH: no (hidden); check the keys username and password"},
		"an access token":            {tls: announce.MailStartTLS, mechanisms: []string{"PLAIN", "XOAUTH2"}, secret: map[string]string{"password": "", "token": mailPassword}},
		"a token, from the start":    {tls: announce.MailImplicitTLS, implicit: true, mechanisms: []string{"XOAUTH2"}, secret: map[string]string{"password": "", "token": mailPassword + "\n"}},
		"an expired token":           {tls: announce.MailStartTLS, mechanisms: []string{"XOAUTH2"}, secret: map[string]string{"password": "", "token": "verysecretpassword9"}, reason: announce.ReasonReceiverRefused, says: "has expired, is for another scope, or is not of the user in username: renew it; XOAUTH2 has the status 401"},
		"no way for a token":         {tls: announce.MailStartTLS, mechanisms: []string{"PLAIN"}, secret: map[string]string{"password": "", "token": mailPassword}, reason: announce.ReasonReceiverRefused, says: "does not offer XOAUTH2"},
		"a token beside a password":  {tls: announce.MailStartTLS, secret: map[string]string{"token": mailPassword}, reason: announce.ReasonInvalidToken, says: "key token of Secret team in namespace shop stands beside password"},
		"a token without a user":     {tls: announce.MailStartTLS, secret: map[string]string{"username": "", "password": "", "token": mailPassword}, reason: announce.ReasonInvalidToken, says: "key username of Secret team in namespace shop is empty"},
		"a token that is endless":    {tls: announce.MailStartTLS, secret: map[string]string{"password": "", "token": strings.Repeat("x", 8<<10+1)}, reason: announce.ReasonInvalidToken, says: "longer than 8192 bytes"},
		"an empty password":          {tls: announce.MailStartTLS, secret: map[string]string{"password": "\n"}, reason: announce.ReasonInvalidToken, says: "key password of Secret team in namespace shop is empty"},
		"no user name":               {tls: announce.MailStartTLS, secret: map[string]string{"username": ""}, reason: announce.ReasonInvalidToken, says: "key username of Secret team in namespace shop is empty"},
		"a user name with a break":   {tls: announce.MailStartTLS, secret: map[string]string{"username": "a\nb"}, reason: announce.ReasonInvalidToken, says: "has control characters"},
		"a password that is endless": {tls: announce.MailStartTLS, secret: map[string]string{"password": strings.Repeat("x", 1025)}, reason: announce.ReasonInvalidToken, says: "longer than 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			certificate, config := mailCertificate(t, tt.expired)
			s.certificate = certificate
			if tt.plain {
				config = nil
			}
			host, _ := serveMail(t, s, config, tt.implicit, func(session *mailSession) { session.mechanisms = tt.mechanisms })
			s.URL = "smtps://" + host
			c := newMailContract(t, s, deadlineOf(""))
			maps.Copy(c.cluster.secrets["shop/team"], tt.secret)
			d := c.delivery(delivery("1").Message)
			d.Receiver.Mail.TLS = tt.tls
			got := c.manager.Send(t.Context(), d)
			if got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) || strings.Contains(got.Message+c.logs.String(), "verysecret") {
				t.Errorf("outcome %+v, want the reason %q and %q\n%s", got, tt.reason, tt.says, c.logs)
			}
			if delivered := got.Result == announce.Delivered; delivered != (tt.reason == "") || delivered != (len(s.got()) == 1) {
				t.Errorf("outcome %+v and %d messages", got, len(s.got()))
			}
		})
	}
}

// TestSlowMailServer: a delivery that takes longer than a request goes on, and is not started again. The next requests learn what became of it.
func TestSlowMailServer(t *testing.T) {
	for name, tt := range map[string]struct {
		answer error
		want   announce.Result
	}{
		"it takes the message": {nil, announce.Delivered},
		"it refuses it":        {&smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "spam"}, announce.Permanent},
	} {
		t.Run(name, func(t *testing.T) {
			s, answered := &server{}, make(chan struct{})
			host, _ := serveMail(t, s, nil, false, func(session *mailSession) {
				session.accept = func() error { <-answered; return tt.answer }
			})
			s.URL = "smtp://" + host
			c := newContractWith(t, announce.ReceiverTypeEmail, s, contractSettings{deadline: time.Minute, answerWithin: 50 * time.Millisecond}, s.URL)
			for range 3 {
				if got := c.deliver(delivery("1").Message); got.Result != announce.UnknownOutcome || got.Reason != announce.ReasonInProgress || got.RetryAfter <= 0 {
					t.Fatalf("outcome while the server takes its time: %+v, want that it is in progress", got)
				}
			}
			close(answered)
			got := c.deliver(delivery("1").Message)
			for got.Reason == announce.ReasonInProgress {
				got = c.deliver(delivery("1").Message)
			}
			if n := len(s.got()); got.Result != tt.want || n != 1 {
				t.Errorf("outcome %+v after %d messages, want %s after 1", got, n, tt.want)
			}
		})
	}
}

// mailCertificate returns a certificate that signs itself, for 127.0.0.1.
func mailCertificate(t testing.TB, expired bool) (*x509.Certificate, *tls.Config) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	if expired {
		template.NotAfter = time.Now().Add(-24 * time.Hour)
	}
	raw := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return must(x509.ParseCertificate(raw)), &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
}

// TestMailReferences: the notifier refuses a delivery whose addresses could end a line, or that names no recipient.
func TestMailReferences(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*announce.Delivery)
		says   string
	}{
		"no recipient":           {func(d *announce.Delivery) { d.Receiver.Mail.To = nil }, "receiver.mail.to"},
		"many recipients":        {func(d *announce.Delivery) { d.Receiver.Mail.To = slices.Repeat([]string{"a@example.com"}, 21) }, "receiver.mail.to"},
		"a recipient of a line":  {func(d *announce.Delivery) { d.Receiver.Mail.To = []string{"a@example.com>\r\nRCPT TO:<b@example.com"} }, "receiver.mail.to"},
		"a recipient and a name": {func(d *announce.Delivery) { d.Receiver.Mail.To = []string{"A <a@example.com>"} }, "receiver.mail.to"},
		"two recipients in one":  {func(d *announce.Delivery) { d.Receiver.Mail.To = []string{"a@example.com,b@example.com"} }, "receiver.mail.to"},
		"a long recipient":       {func(d *announce.Delivery) { d.Receiver.Mail.To = []string{strings.Repeat("a", 250) + "@b.cd"} }, "receiver.mail.to"},
		"a sender of a line":     {func(d *announce.Delivery) { d.Receiver.Mail.From = "a@example.com\n" }, "receiver.mail.from"},
		"no sender":              {func(d *announce.Delivery) { d.Receiver.Mail.From = "" }, "receiver.mail.from"},
		"a server of a path":     {func(d *announce.Delivery) { d.Receiver.Mail.Server = "example.com/x" }, "receiver.mail.server"},
		"no port":                {func(d *announce.Delivery) { d.Receiver.Mail.Server = "example.com:99999" }, "receiver.mail.server"},
		"no mail":                {func(d *announce.Delivery) { d.Receiver.Mail = nil }, "receiver.mail: missing"},
		"a channel":              {func(d *announce.Delivery) { d.Receiver.Channel = "#shop" }, "receiver.channel"},
		"no TLS that is known":   {func(d *announce.Delivery) { d.Receiver.Mail.TLS = "none" }, "receiver.mail.tls"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMailContract(t, script(t), deadlineOf(""))
			d := c.delivery(delivery("1").Message)
			tt.change(&d)
			if status, answer := c.post(managerToken, string(must(json.Marshal(d)))); status != http.StatusBadRequest || !strings.Contains(answer, tt.says) {
				t.Errorf("answer %d %s, want 400 and %q", status, answer, tt.says)
			}
		})
	}
}
