package email

import (
	"fmt"
	"net/textproto"
	"strings"
)

// Advice about more than one code.
const (
	expired     = "the access token in the key token of the Secret has expired, is for another scope, or is not of the user in username: renew it"
	notForUser  = "the token server's access token is for another scope, or the client may not send as the user in username: check both on the server and in the Secret"
	credentials = "check the keys username and password of the Secret"
	needsLogin  = "the server requires a user: set secretRef, or have the server allow the notifier's address"
	needsTLS    = "the server requires TLS: set tls to StartTLS or Implicit"
	domainOfBox = "check the domain of the recipient"
	fullBox     = "the mailbox takes no mail, or is full: its owner must make room, or remove the recipient"
)

// adviceByCode tells the user what to do about an enhanced status code, without its class
// (https://www.iana.org/assignments/smtp-enhanced-status-codes). %s is the sender.
var adviceByCode = map[string]string{
	"1.2": domainOfBox, "1.10": domainOfBox, "4.4": domainOfBox,
	"1.7": "the server does not take %s as the sender: correct from", "1.8": "the domain of the sender %s does not exist for the server: correct from",
	"2.1": fullBox, "2.2": fullBox,
	"7.3": needsTLS, "7.10": needsTLS, "7.11": needsTLS,
	"7.8": credentials, "7.9": "the server requires another way to authenticate: some want a password made for programs",
	"7.57": needsLogin, "7.60": "the server must let the notifier send as %s",
	"7.139": "the server takes no passwords any more: use an access token, in the key token of the Secret instead of password",
	"7.23":  "the domain of %s must allow the server to send for it (SPF)", "7.26": "the domain of %s must allow the server to send for it (SPF, DKIM)",
}

// adviceFor tells the user what to do about an answer, by its codes; "" if they say too little.
func (s *session) adviceFor(answer *textproto.Error) string {
	// Postfix looks at the name in EHLO only when it knows the recipient, with codes that mean something else as well.
	if strings.Contains(answer.Msg, "Helo command rejected") || answer.Code == 504 && strings.Contains(answer.Msg, "hostname") {
		return fmt.Sprintf("the server does not take %s as the notifier's name in EHLO: set helo to a full name that the server knows", s.ref.HeloName())
	}
	switch code, _, found := cutCode(answer.Msg); {
	case answer.Code == 535 && s.to.Client != nil:
		return notForUser
	case answer.Code == 535 && s.to.IsAccessToken:
		return expired
	case answer.Code == 535 && code == "5.7.3": // Exchange means the credentials, others TLS
		return credentials
	case answer.Code == 530 && strings.Contains(strings.ToUpper(answer.Msg), "STARTTLS"):
		return needsTLS
	case answer.Code == 530:
		return needsLogin
	case found:
		_, detail, _ := strings.Cut(code, ".")
		return strings.Replace(adviceByCode[detail], "%s", s.ref.From, 1)
	}
	return ""
}
