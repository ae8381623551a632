package registry

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const (
	// maxSent bounds how many secrets of a conversation are remembered, the newest ones.
	maxSent = 64
	// maxSentBytes bounds each: servers take at most 1 MiB of headers, most of them far less.
	maxSentBytes = 64 << 10
)

// errTooLarge refuses to send what could not be remembered.
var errTooLarge = errors.New("a credential or token of more than 64 KiB is not sent")

// sent are the secrets that were sent to registries and their token servers, whoever made them: tokens are in no
// pull secret, and may be quoted like what is. It is safe for concurrent use.
type sent struct {
	mu     sync.Mutex
	values []string
}

// remember takes the secrets out of a request before it is sent.
func (s *sent) remember(request *http.Request) error {
	_, value, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if err := s.add(value); err != nil {
		return err
	}
	if user, password, ok := request.BasicAuth(); ok {
		return errors.Join(s.add(password), s.add(base64.StdEncoding.EncodeToString([]byte(user+":"+password))))
	}
	return s.add(refreshTokenIn(request))
}

// refreshTokenIn returns what a token server gave for the next token: only that is sent in a form.
func refreshTokenIn(request *http.Request) string {
	if request.Method != http.MethodPost || request.GetBody == nil || request.ContentLength > maxAnswerBytes {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	// A copy, whose body may be read.
	form := http.Request{Method: request.Method, Header: request.Header, Body: body}
	defer body.Close()
	return form.PostFormValue("refresh_token")
}

// add keeps a secret, and lets the oldest go.
func (s *sent) add(secret string) error {
	if len(secret) > maxSentBytes {
		return errTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret == "" || slices.Contains(s.values, secret) {
		return nil
	}
	s.values = append(s.values, secret)
	s.values = s.values[max(len(s.values)-maxSent, 0):]
	return nil
}

// all returns a copy of what is remembered.
func (s *sent) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.values)
}

// redact takes secrets out of a text: a registry may quote what it was given. The longest go first: a short one that
// begins a longer one would leave the rest of that in clear.
func redact(text string, secrets []string) string {
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}
