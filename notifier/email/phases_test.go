package email

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// serveSlowly is a mail server that takes one mail. It pauses before it answers: pauses has "greeting", "." for the message, or a command.
func serveSlowly(conn net.Conn, pauses map[string]time.Duration) {
	defer conn.Close()
	answer := func(to, text string) {
		time.Sleep(pauses[to]) // in the time of the test's bubble
		_, _ = fmt.Fprint(conn, text+"\r\n")
	}
	answer("greeting", "220 mail.example.com ESMTP")
	isMail := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		command, _, _ := strings.Cut(lines.Text(), " ")
		switch {
		case isMail && lines.Text() != ".":
			continue
		case command == "DATA":
			isMail = true
			answer(command, "354 End data with <CR><LF>.<CR><LF>")
			continue
		case command == ".":
			isMail = false
		}
		answer(command, "250 2.0.0 Ok")
	}
}

// TestPhases: a server may take as long for a phase as the phase's limit says, and no longer. Only after the message is it unknown whether the server
// has it.
func TestPhases(t *testing.T) {
	for _, tt := range []struct {
		phase string
		pause time.Duration
		want  announce.Result
	}{
		{"greeting", greetLimit - time.Second, announce.Delivered},
		{"greeting", greetLimit + time.Second, announce.Temporary},
		{"MAIL", commandLimit - time.Second, announce.Delivered},
		{"MAIL", commandLimit + time.Second, announce.Temporary},
		{"RCPT", commandLimit + time.Second, announce.Temporary},
		{"DATA", commandLimit + time.Second, announce.Temporary},
		{".", acceptLimit - time.Second, announce.Delivered},
		{".", acceptLimit + time.Second, announce.UnknownOutcome},
		{"QUIT", time.Hour, announce.Delivered},
	} {
		t.Run(fmt.Sprint(tt.phase, " after ", tt.pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				var server sync.WaitGroup
				defer server.Wait()
				server.Go(func() { serveSlowly(there, map[string]time.Duration{tt.phase: tt.pause}) })
				s := &session{
					poster: NewPoster(receiver.Network{}), conn: here, deadline: time.Now().Add(Timeout),
					ref: announce.MailRef{Server: "mail.example.com", TLS: announce.MailWithoutTLS, From: "scanner@example.com", To: []string{"team@example.com"}},
				}
				defer s.close()
				body, err := Render(message(), s.ref)
				if err != nil {
					t.Fatal(err)
				}
				if got := s.deliver(here, body); got.Result != tt.want {
					t.Errorf("outcome %+v, want %s", got, tt.want)
				}
			})
		})
	}
}
