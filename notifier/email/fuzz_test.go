package email

import (
	"bytes"
	"encoding/base64"
	"net"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier/internal/outcometest"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// scripted is a connection to a server that has sent all of its answers before.
type scripted struct {
	net.Conn
	answers *bytes.Reader
	sent    bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)  { return s.answers.Read(p) }
func (s *scripted) Write(p []byte) (int, error) { return s.sent.Write(p) }
func (s *scripted) Close() error                { return nil }

// FuzzAnswers: whatever a mail server without TLS answers, the outcome is one that the notifier may pass on, in one bounded line. A message counts as
// delivered only if it was sent to the end, and nobody on the way sees the password.
func FuzzAnswers(f *testing.F) {
	const greeting, ok, data = "220 mail.example.com\r\n", "250 2.1.0 ok\r\n", "354 go on\r\n"
	for _, seed := range []string{
		greeting + ok + ok + ok + ok + data + ok + "221 bye\r\n", greeting + "250-mail\r\n250-AUTH SCRAM-SHA-256 PLAIN LOGIN\r\n250 STARTTLS\r\n334 \r\n334 cj1hLHM9QUFBQSxpPTE=\r\n235 ok\r\n",
		greeting + "250-mail\r\n250 AUTH SCRAM-SHA-256\r\n334 PGh0bWw+DQo=\r\n", greeting + "250-mail\r\n250 AUTH PLAIN\r\n221 bye\r\n", greeting + "250-mail\r\n250 AUTH LOGIN\r\n550 <html>\r\n",
		greeting + ok + ok + "550 5.1.1 no\r\n" + ok + data + ok, greeting + ok + ok + ok + ok + data, "421 4.3.2 shutting down\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
		greeting + ok + "550-5.7.1 one\r\n550 5.7.1 two\r\n", greeting + ok + "999 what\r\n", "",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	const password = "verysecretpassword8"
	encoded := []string{password, base64.StdEncoding.EncodeToString([]byte(password)), base64.StdEncoding.EncodeToString([]byte("\x00robot\x00" + password))}
	poster := NewPoster(receiver.Network{})
	f.Fuzz(func(t *testing.T, answers []byte, withPassword bool) {
		conn := &scripted{answers: bytes.NewReader(answers)}
		s := &session{poster: poster, ref: announce.MailRef{
			Server: "mail.example.com:25", TLS: announce.MailWithoutTLS, From: "scanner@example.com", To: []string{"team@example.com", "o'neil+scans@example.org"},
		}}
		if withPassword {
			s.to = receiver.Address{Username: "robot", Token: password}
		}
		got := s.deliver(conn, []byte("Subject: x\r\n\r\ny\r\n"))
		sent := conn.sent.String()
		if got.Result == announce.Delivered && (!strings.Contains(sent, "\r\ny\r\n.\r\n") || !bytes.Contains(answers, []byte("354"))) {
			t.Errorf("%q is taken for the delivery of a message, after %q", answers, sent)
		}
		if err := outcometest.Check(got); err != nil || got.Result == announce.RateLimited {
			t.Errorf("%q becomes %+v: %v", answers, got, err)
		}
		for _, secret := range encoded {
			if strings.Contains(sent, secret) || strings.Contains(got.Message, secret) && !bytes.Contains(answers, []byte(secret)) {
				t.Errorf("%q: the password is in %q or %q", answers, sent, got.Message)
			}
		}
	})
}

// TestIterations: a server cannot keep the processor busy with a challenge.
func TestIterations(t *testing.T) {
	for iterations, want := range map[string]bool{"4096": true, "600000": true, "1000000": false, "2147483647": false, "+999999": false} {
		auth := mechanism{authFor([]string{"SCRAM-SHA-256"}, receiver.Address{Username: "robot", Token: "verysecretpassword8"}, "mail.example.com")}
		first, err := auth.Next(nil, true)
		if err != nil {
			t.Fatal(err)
		}
		_, nonce, _ := strings.Cut(string(first), ",r=")
		answer, err := auth.Next([]byte("r="+nonce+"server,s=c2FsdA==,i="+iterations), true)
		if (err == nil) != want || (answer != nil) != want {
			t.Errorf("%s iterations: answer %q, error %v, want one: %t", iterations, answer, err, want)
		}
	}
}
