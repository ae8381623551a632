package announce

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MailRef is the server and the addresses of mails. None of it is secret.
type MailRef struct {
	// Server is the name of the server or its IPv4 address, with its port if it is not the default one of TLS.
	Server string  `json:"server"`
	TLS    MailTLS `json:"tls"`
	From   string  `json:"from"`
	// Helo is the name that the notifier gives to the server; empty for the domain of From.
	Helo string   `json:"helo,omitempty"`
	To   []string `json:"to"`
}

// MailTLS is when the connection to a mail server becomes a TLS connection.
type MailTLS string

// Values of MailTLS.
const (
	// MailStartTLS uses STARTTLS, and sends nothing if the server does not offer it.
	MailStartTLS MailTLS = "StartTLS"
	// MailImplicitTLS uses TLS from the start.
	MailImplicitTLS MailTLS = "Implicit"
	// MailWithoutTLS uses no TLS.
	MailWithoutTLS MailTLS = "None"
)

// mailPorts are the default ports (https://www.rfc-editor.org/rfc/rfc8314, https://www.rfc-editor.org/rfc/rfc5321).
var mailPorts = map[MailTLS]string{MailStartTLS: "587", MailImplicitTLS: "465", MailWithoutTLS: "25"}

// MaxMailRecipients bounds the recipients of a receiver.
const MaxMailRecipients = 20

// maxMailAddress bounds an address in bytes (https://www.rfc-editor.org/errata/eid1690).
const maxMailAddress = 254

// maxHelo bounds the name of a host in bytes.
const maxHelo = 253

var (
	// mailAddress matches addresses of ASCII characters that need no quotes in the protocol. The API has the same pattern.
	mailAddress = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*@[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)
	// mailHost is the API's pattern of a host.
	mailHost = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)
	// mailServer is also the API's pattern.
	mailServer = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]{1,5})?$`)
)

// Validate returns what is wrong. Nothing in a valid MailRef can end a line of the protocol or of a header.
func (r MailRef) Validate() error {
	_, port, err := net.SplitHostPort(r.HostPort())
	_, notPort := strconv.ParseUint(port, 10, 16)
	switch {
	case mailPorts[r.TLS] == "":
		return fmt.Errorf("tls: want %s, %s or %s", MailStartTLS, MailImplicitTLS, MailWithoutTLS)
	case len(r.Server) > 259, !mailServer.MatchString(r.Server), err != nil, notPort != nil:
		return errors.New("server: want a host, or a host and a port")
	case r.Helo != "" && (len(r.Helo) > maxHelo || !mailHost.MatchString(r.Helo)):
		return errors.New("helo: want the name of a host")
	case !isMailAddress(r.From):
		return errors.New("from: not an address")
	case len(r.To) == 0, len(r.To) > MaxMailRecipients:
		return fmt.Errorf("to: want 1 to %d addresses", MaxMailRecipients)
	case slices.ContainsFunc(r.To, func(to string) bool { return !isMailAddress(to) }):
		return errors.New("to: not an address")
	}
	return nil
}

func isMailAddress(text string) bool {
	return len(text) <= maxMailAddress && mailAddress.MatchString(text)
}

// Host returns the server without its port.
func (r MailRef) Host() string {
	if host, _, err := net.SplitHostPort(r.Server); err == nil {
		return host
	}
	return r.Server
}

// HeloName returns the name for the command EHLO. Many servers refuse one without a domain, such as that of a pod.
func (r MailRef) HeloName() string {
	_, domain, _ := strings.Cut(r.From, "@")
	return cmp.Or(r.Helo, domain)
}

// HostPort returns the server with its port.
func (r MailRef) HostPort() string {
	_, port, _ := net.SplitHostPort(r.Server)
	return net.JoinHostPort(r.Host(), cmp.Or(port, mailPorts[r.TLS]))
}
