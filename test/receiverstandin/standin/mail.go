package standin

import (
	"crypto/tls"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// MailServer returns a mail server with STARTTLS. It takes mails over TLS only, and from User only. The part of the first recipient before the @
// is the channel of a mail.
func (s *Standin) MailServer(domain string, config *tls.Config) *smtp.Server {
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &mailSession{standin: s, conn: c}, nil }))
	server.Domain, server.TLSConfig, server.MaxMessageBytes = domain, config, maxBody
	server.ReadTimeout, server.WriteTimeout = time.Minute, time.Minute
	return server
}

// mailSession is a connection to the mail server.
type mailSession struct {
	standin *Standin
	conn    *smtp.Conn
	isUser  bool
	to      []string
}

var _ smtp.AuthSession = (*mailSession)(nil)

// AuthMechanisms implements smtp.AuthSession.
func (m *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements smtp.AuthSession.
func (m *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != User || password != Token {
			return smtp.ErrAuthFailed
		}
		m.isUser = true
		return nil
	}), nil
}

// Reset implements smtp.Session.
func (m *mailSession) Reset() { m.to = nil }

// Logout implements smtp.Session.
func (m *mailSession) Logout() error { return nil }

// Mail implements smtp.Session.
func (m *mailSession) Mail(string, *smtp.MailOptions) error {
	if _, isTLS := m.conn.TLSConnectionState(); !isTLS || !m.isUser {
		return smtp.ErrAuthRequired
	}
	return nil
}

// Rcpt implements smtp.Session.
func (m *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	m.to = append(m.to, to)
	return nil
}

// Data implements smtp.Session.
func (m *mailSession) Data(r io.Reader) error {
	message, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
	if err != nil {
		return err
	}
	channel, _, _ := strings.Cut(m.to[0], "@")
	taken := Mail{MessageID: message.Header.Get("Message-Id"), Subject: subject, To: m.to}
	m.standin.change(channel, func(state *State) { state.Mails = append(state.Mails, taken) })
	_, _ = fmt.Fprintf(m.standin.log, "mail to %v: %s\n", m.to, subject)
	return nil
}
