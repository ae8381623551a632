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
	// maxSent bounds how many of the sent secrets are kept. The newest ones are.
	maxSent = 64
	// maxSentBytes bounds each of them: servers accept at most 1 MiB of headers, most of them far less.
	maxSentBytes = 64 << 10
)

// errSecretTooLarge is returned for a secret that is too large to be kept, and is therefore not sent.
var errSecretTooLarge = errors.New("a credential or token of more than 64 KiB is not sent")

// sentSecrets keeps the secrets that were sent to registries and their token servers, for redaction. Tokens are in no
// pull secret, and a registry may quote them as well. It is safe for concurrent use.
type sentSecrets struct {
	mu     sync.Mutex
	values []string
}

// keepFrom keeps the secrets of a request before it is sent. If it fails, the request must not be sent.
func (s *sentSecrets) keepFrom(request *http.Request) error {
	_, value, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if err := s.add(value); err != nil {
		return err
	}
	if user, password, ok := request.BasicAuth(); ok {
		return errors.Join(s.add(password), s.add(base64.StdEncoding.EncodeToString([]byte(user+":"+password))))
	}
	return s.add(refreshTokenIn(request))
}

// refreshTokenIn returns the refresh token in a request to a token server. Only that secret is sent in a form.
func refreshTokenIn(request *http.Request) string {
	if request.Method != http.MethodPost || request.GetBody == nil || request.ContentLength > maxAnswerBytes {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	// The form is parsed from a copy of the request, whose body may be consumed.
	form := http.Request{Method: request.Method, Header: request.Header, Body: body}
	defer body.Close()
	return form.PostFormValue("refresh_token")
}

// add keeps a secret, and drops the oldest one beyond maxSent.
func (s *sentSecrets) add(secret string) error {
	if len(secret) > maxSentBytes {
		return errSecretTooLarge
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

// all returns a copy of the kept secrets.
func (s *sentSecrets) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.values)
}

// redact replaces secrets in a text, since a registry may quote what it received. Longer secrets are replaced first: a short one
// that is the beginning of a longer one would leave the rest of the longer one readable.
func redact(text string, secrets []string) string {
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}
