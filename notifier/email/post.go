// Package email sends messages over SMTP (https://www.rfc-editor.org/rfc/rfc5321).
//
// The words and the bounds of a mail are those of package slack. Whatever names an image contains, a mail has no header, recipient or link of
// theirs, and needs no image from the network. Passwords are sent over TLS only. The package knows nothing about Secrets, retries, or what is new.
package email

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// maxAnswerBytes bounds what a server may send during one delivery, with the handshake and certificates of TLS.
const maxAnswerBytes = 1 << 20

// Poster sends messages to mail servers. It is safe for concurrent use.
type Poster struct {
	network receiver.Network
	client  *receiver.Client
	tokens  tokens
}

// NewPoster returns a Poster. Proxies are for HTTP, and not used for mails.
func NewPoster(network receiver.Network) *Poster {
	return &Poster{network: network, client: receiver.NewClient("the mail server", network), tokens: newTokens(network)}
}

// Limits of the phases of a delivery (https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.2). A server may look for spam before it greets, and before
// it answers the message: a client that gives up earlier causes copies.
const (
	connectLimit = 30 * time.Second
	greetLimit   = 5 * time.Minute
	commandLimit = 2 * time.Minute
	messageLimit = 3 * time.Minute
	acceptLimit  = 10 * time.Minute
	quitLimit    = 5 * time.Second
	// Timeout bounds a delivery as a whole.
	Timeout = 20 * time.Minute
)

// Post sends a message, once, within Timeout. The outcome contains nothing of the password.
//
// The message is delivered if the server takes it for at least one recipient. Outcome.Message then names the others, who do not get it: one full
// mailbox must not keep the message from everybody else, and those who have it must not get it again.
func (p *Poster) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ref := d.Receiver.Mail
	if ref == nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the delivery names no mail server"}
	}
	body, err := Render(d.Message, *ref)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the message cannot be encoded"}
	}
	if to.Client == nil {
		return p.post(ctx, to, *ref, body)
	}
	token, none := p.tokens.get(ctx, to)
	if none != nil {
		return *none
	}
	withToken := to
	withToken.Token = token
	outcome := p.post(ctx, withToken, *ref, body)
	if outcome.Result == announce.Permanent { // perhaps since the token was revoked
		p.tokens.forget(to)
	}
	outcome.Message = strings.ReplaceAll(outcome.Message, token, "(hidden)")
	return outcome
}

func (p *Poster) post(ctx context.Context, to receiver.Address, ref announce.MailRef, body []byte) announce.Outcome {
	s := &session{poster: p, to: to, ref: ref}
	s.deadline, _ = ctx.Deadline()
	defer s.close()
	conn, none := s.connect(ctx)
	if none != nil {
		return *none
	}
	return s.deliver(conn, body)
}

// session is one connection to a mail server.
type session struct {
	poster *Poster
	to     receiver.Address
	ref    announce.MailRef
	conn   net.Conn
	smtp   *smtp.Client
	// deadline is that of the delivery.
	deadline time.Time
}

// within limits the time of the next phase.
func (s *session) within(limit time.Duration) {
	if s.conn == nil {
		return
	}
	end := time.Now().Add(limit)
	if !s.deadline.IsZero() && s.deadline.Before(end) {
		end = s.deadline
	}
	_ = s.conn.SetDeadline(end)
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// connect returns a connection to the server, from which no more than maxAnswerBytes can be read.
func (s *session) connect(ctx context.Context) (net.Conn, *announce.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	dialer := &net.Dialer{Control: s.to.Target.Control}
	conn, err := dialer.DialContext(ctx, "tcp", s.ref.HostPort())
	if err != nil {
		return nil, s.poster.client.Failure(err, false)
	}
	s.conn = conn
	s.within(connectLimit)
	conn = &boundedConn{Conn: conn, remaining: maxAnswerBytes}
	if s.ref.TLS == announce.MailImplicitTLS {
		secured := tls.Client(conn, s.tls())
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, s.poster.client.Failure(err, false)
		}
		conn = secured
	}
	return conn, nil
}

// deliver sends the message over a connection.
func (s *session) deliver(conn net.Conn, body []byte) announce.Outcome {
	if none := s.greet(conn); none != nil {
		return *none
	}
	for _, step := range []func() *announce.Outcome{s.startTLS, s.authenticate} {
		if none := step(); none != nil {
			return *none
		}
	}
	return s.transactions(body)
}

// transactions sends the message, in one transaction if the server takes all recipients at once. Some servers take only some of them, such as those of one
// domain, and refuse the others for now: these are in the next transaction (https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.1.10).
func (s *session) transactions(body []byte) announce.Outcome {
	left, taken := s.ref.To, 0
	var later, never []refusedRecipient
	for len(left) > 0 {
		refused, none := s.envelope(left)
		if none == nil {
			none = s.data(body)
		}
		if none != nil && taken == 0 {
			return *none
		} else if none != nil {
			break // those of the earlier transactions have the message, and must not get it again
		}
		taken += len(left) - len(refused)
		left, later = nil, nil
		for _, r := range refused {
			if r.outcome.Result == announce.Permanent {
				never = append(never, r)
			} else {
				left, later = append(left, r.address), append(later, r)
			}
		}
	}
	// The server has the message, whatever it answers to QUIT.
	s.within(quitLimit)
	_ = s.smtp.Quit()
	delivered := announce.Outcome{Result: announce.Delivered}
	if refused := slices.Concat(never, later); len(refused) > 0 {
		delivered.Reason = announce.ReasonRecipientsRefused
		delivered.Message = fmt.Sprintf("the mail server took the message for %d of %d recipients, and refused %s", taken, len(s.ref.To), namesOf(refused))
		var advice []string
		for _, r := range refused {
			if a := cmp.Or(s.adviceFor(r.answer), r.advice()); !slices.Contains(advice, a) {
				advice = append(advice, a)
			}
		}
		delivered.Message += "; " + strings.Join(advice, "; ")
	}
	return delivered
}

// greet waits for the server's greeting, and introduces the notifier.
func (s *session) greet(conn net.Conn) *announce.Outcome {
	var err error
	s.within(greetLimit)
	if s.smtp, err = smtp.NewClient(conn, s.ref.Host()); err != nil {
		return s.failed("the connection", err, "")
	}
	if err := s.smtp.Hello(s.ref.HeloName()); err != nil {
		return s.failed("EHLO "+s.ref.HeloName(), err, "")
	}
	s.within(commandLimit)
	return nil
}

func (s *session) tls() *tls.Config {
	config := s.poster.network.TLS(s.to.Certificates)
	config.ServerName = s.ref.Host()
	return config
}

func (s *session) startTLS() *announce.Outcome {
	if s.ref.TLS != announce.MailStartTLS {
		return nil
	}
	if offered, _ := s.smtp.Extension("STARTTLS"); !offered {
		return refusal("the mail server does not offer STARTTLS, so that anybody in between could read the message; if its port is for TLS from the start, " +
			"as 465 often is, set tls: Implicit")
	}
	if err := s.smtp.StartTLS(s.tls()); err != nil {
		return s.failed("STARTTLS", err, "")
	}
	return nil
}

func (s *session) authenticate() *announce.Outcome {
	if s.to.Username == "" {
		return nil
	}
	_, offered := s.smtp.Extension("AUTH")
	auth := authFor(strings.Fields(strings.ToUpper(offered)), s.to, s.ref.Host())
	switch {
	case auth != nil:
	case s.to.IsAccessToken:
		return refusal("the mail server does not offer XOAUTH2, which the key token or clientID of the Secret is for: use the key password instead")
	default:
		return refusal("the mail server offers none of the ways to authenticate that are supported (SCRAM-SHA-256, PLAIN, LOGIN); " +
			"without authentication, remove secretRef")
	}
	if err := s.smtp.Auth(mechanism{auth}); err != nil {
		for _, known := range []error{errUnencrypted, errChallenge} {
			if errors.Is(err, known) {
				return refusal(known.Error())
			}
		}
		none := s.failed("AUTH", err, credentials)
		if token, ok := auth.(*accessToken); ok && token.status != "" {
			none.Message += "; XOAUTH2 has the status " + token.status
		}
		return none
	}
	return nil
}

// authFor returns the best of the offered mechanisms for what the receiver's Secret has; nil if none is supported. All of them refuse to work without TLS,
// but for SCRAM, which does not send the password.
func authFor(offered []string, to receiver.Address, host string) smtp.Auth {
	username, password := to.Username, to.Token
	switch {
	case to.IsAccessToken && slices.Contains(offered, "XOAUTH2"):
		return &accessToken{Auth: smtp.XOAuth2Auth(username, to.Token)}
	case to.IsAccessToken:
		return nil
	case slices.Contains(offered, "SCRAM-SHA-256"):
		return smtp.ScramSHA256Auth(username, password)
	case slices.Contains(offered, "PLAIN"):
		return smtp.PlainAuth("", username, password, host, false)
	case slices.Contains(offered, "LOGIN"):
		return smtp.LoginAuth(username, password, host, false)
	}
	return nil
}

// accessToken authenticates with a token of OAuth 2.0
// (https://developers.google.com/workspace/gmail/imap/xoauth2-protocol, and Microsoft's Exchange Online).
type accessToken struct {
	smtp.Auth
	// status is the server's word for why it does not take the token.
	status string
}

// Start implements smtp.Auth.
func (a *accessToken) Start(server *smtp.ServerInfo) (name string, first []byte, err error) {
	if !server.TLS {
		return "", nil, errUnencrypted
	}
	return a.Auth.Start(server)
}

// Next implements smtp.Auth. A challenge is the server's reason in JSON: the answer to it is empty, and then the server refuses.
func (a *accessToken) Next(fromServer []byte, more bool) (answer []byte, err error) {
	var reason struct {
		Status string `json:"status"`
	}
	if more && json.Unmarshal(fromServer, &reason) == nil && receiver.IsWord(reason.Status) {
		a.status = reason.Status
	}
	return a.Auth.Next(fromServer, more)
}

// mechanism is a way to authenticate. Its errors are errUnencrypted and errChallenge, which do not quote what the server has sent.
type mechanism struct{ smtp.Auth }

var (
	errUnencrypted = errors.New("the mail server wants a password or token without TLS, to which none is sent: set tls: StartTLS or Implicit, or remove secretRef")
	errChallenge   = errors.New("the mail server does not keep to the protocol of AUTH: ask its administrator")
)

// Start implements smtp.Auth.
func (m mechanism) Start(server *smtp.ServerInfo) (name string, first []byte, err error) {
	if name, first, err = m.Auth.Start(server); err != nil {
		err = errUnencrypted
	}
	return name, first, err
}

// tooManyIterations matches the challenge of a server that asks for a million iterations or more (https://www.rfc-editor.org/rfc/rfc5802#section-5.1).
// Servers ask for some thousands. Each costs time of the processor that no deadline ends.
var tooManyIterations = regexp.MustCompile(`,i=[^,]{7}`)

// Next implements smtp.Auth.
func (m mechanism) Next(fromServer []byte, more bool) (answer []byte, err error) {
	if tooManyIterations.Match(fromServer) {
		return nil, errChallenge
	}
	if answer, err = m.Auth.Next(fromServer, more); err != nil {
		err = errChallenge
	}
	return answer, err
}

// envelope names the sender and some recipients, and returns those that the server refuses. It fails if the server takes none of them: for now, if that
// holds for one.
func (s *session) envelope(to []string) (refused []refusedRecipient, none *announce.Outcome) {
	// Addresses are of ASCII characters, and so needs no server to support others.
	s.smtp.SkipSMTPUTF8(true)
	s.within(commandLimit)
	if err := s.smtp.Mail("<" + s.ref.From + ">"); err != nil {
		return nil, s.failed("MAIL FROM", err, "the server must let the notifier send as "+s.ref.From)
	}
	for _, recipient := range to {
		s.within(commandLimit)
		err := s.smtp.Rcpt("<" + recipient + ">")
		if err == nil {
			continue
		}
		answer, isAnswer := errors.AsType[*textproto.Error](err)
		outcome := s.failed("RCPT TO "+recipient, err, correctRecipient)
		if !isAnswer || answer.Code == closing {
			return nil, outcome
		}
		if none == nil || none.Result == announce.Permanent {
			none = outcome
		}
		refused = append(refused, refusedRecipient{recipient, answer, outcome})
	}
	switch {
	case len(refused) < len(to):
		return refused, nil
	case len(refused) > 1:
		none.Message += "; refused are " + namesOf(refused)
	}
	return nil, none
}

const correctRecipient = "correct or remove the recipient"

// refusedRecipient is a recipient with the server's answer, and what it means.
type refusedRecipient struct {
	address string
	answer  *textproto.Error
	outcome *announce.Outcome
}

// advice tells the user what to do if the codes of the answer say no more.
func (r refusedRecipient) advice() string {
	if r.outcome.Result == announce.Permanent {
		return correctRecipient
	}
	return "an answer of 4xx is for now: the next message may reach the recipient"
}

// namesOf returns recipients with the codes of the server's answers.
func namesOf(refused []refusedRecipient) string {
	names := make([]string, 0, len(refused))
	for _, r := range refused {
		names = append(names, fmt.Sprintf("%s (%s)", r.address, codesOf(r.answer)))
	}
	return strings.Join(names, ", ")
}

// closing is the code with which a server ends the connection (https://www.rfc-editor.org/rfc/rfc5321#section-3.8).
const closing = 421

// data sends the message, and returns an outcome unless the server takes it. The outcome is unknown between the end of the message and the server's answer.
func (s *session) data(body []byte) *announce.Outcome {
	tooLarge := fmt.Sprintf("the message has %d KiB", (len(body)+1023)/1024)
	s.within(commandLimit)
	w, err := s.smtp.Data()
	if err != nil {
		return s.failed("DATA", err, tooLarge)
	}
	s.within(messageLimit)
	if _, err := w.Write(body); err != nil {
		return s.failed("the message", err, tooLarge)
	}
	s.within(acceptLimit)
	if err := w.Close(); err != nil {
		if _, isAnswer := errors.AsType[*textproto.Error](err); isAnswer {
			return s.failed("the message", err, tooLarge)
		}
		return s.poster.client.Failure(withoutWords(err), true)
	}
	return nil
}

// failed returns the outcome of a step in which the message was certainly not taken: 4xx is temporary, 5xx permanent, and no answer a failure of
// the network. advice is for answers of 5xx whose enhanced code says no more.
func (s *session) failed(step string, err error, advice string) *announce.Outcome {
	answer, isAnswer := errors.AsType[*textproto.Error](err)
	if !isAnswer {
		return s.poster.client.Failure(withoutWords(err), false)
	}
	message := fmt.Sprintf("the mail server answers %s to %s", codesOf(answer), step)
	if _, words, _ := cutCode(answer.Msg); receiver.IsWord(words) {
		message += ": " + words
	}
	if answer.Code >= 500 {
		advice = cmp.Or(s.adviceFor(answer), advice)
	} else {
		advice = s.adviceFor(answer)
	}
	if advice != "" {
		message += "; " + advice
	}
	if answer.Code < 500 {
		return &announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: message}
	}
	return refusal(message)
}

func refusal(message string) *announce.Outcome {
	return &announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: message}
}

// withoutWords replaces an error that quotes what the server has sent.
func withoutWords(err error) error {
	if _, isProtocol := errors.AsType[textproto.ProtocolError](err); isProtocol {
		return errors.New("the server does not speak SMTP, or expects TLS from the start (tls: Implicit)")
	}
	return err
}

// enhancedCode is a status code such as 5.7.1 (https://www.rfc-editor.org/rfc/rfc3463).
var enhancedCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}$`)

// cutCode splits the first line of an answer's text into its enhanced code, if it has one, and its words.
func cutCode(text string) (code, words string, found bool) {
	line, _, _ := strings.Cut(text, "\n")
	if code, words, _ = strings.Cut(line, " "); enhancedCode.MatchString(code) {
		return code, words, true
	}
	return "", line, false
}

// codesOf returns an answer's code and enhanced code, such as "550 5.1.1".
func codesOf(answer *textproto.Error) string {
	text := fmt.Sprint(answer.Code)
	if code, _, found := cutCode(answer.Msg); found {
		text += " " + code
	}
	return text
}

// boundedConn is a connection that ends after a number of bytes.
type boundedConn struct {
	net.Conn
	remaining int
}

var errTooLong = errors.New("the server sends too much")

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.remaining <= 0 {
		return 0, errTooLong
	}
	n, err := io.LimitReader(c.Conn, int64(c.remaining)).Read(p)
	c.remaining -= n
	return n, err
}
