package email

import (
	"errors"
	"testing"

	"github.com/wneessen/go-mail/smtp"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
)

// TestAccessTokenNeedsTLS: without TLS, nothing is sent of an access token.
func TestAccessTokenNeedsTLS(t *testing.T) {
	auth := mechanism{authFor([]string{"XOAUTH2"}, receiver.Address{Username: "robot@example.com", Token: "verysecrettoken", IsAccessToken: true}, "mail.example.com")}
	if name, first, err := auth.Start(&smtp.ServerInfo{Name: "mail.example.com"}); !errors.Is(err, errUnencrypted) || len(name)+len(first) > 0 {
		t.Errorf("%q with %d bytes and %v, want nothing", name, len(first), err)
	}
	if name, first, err := auth.Start(&smtp.ServerInfo{Name: "mail.example.com", TLS: true}); err != nil || name != "XOAUTH2" || len(first) == 0 {
		t.Errorf("%q with %d bytes and %v over TLS, want the token", name, len(first), err)
	}
}
