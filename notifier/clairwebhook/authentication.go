package clairwebhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

const (
	// verdictAge is how long a verdict is cached. A revoked token works no longer than that.
	verdictAge  = 10 * time.Second
	maxVerdicts = 10_000
	// lookupTimeout bounds the requests to the API server for one lookup of a Scanner and its Secrets.
	lookupTimeout = 5 * time.Second
	// maxCredentialBytes bounds the credentials that are checked.
	maxCredentialBytes = 4 << 10
)

// TokenHeader is the header with the token that spec.backend.clair.webhookTokenSecretRef references. In Clair's configuration it is set in
// notifier.webhook.headers.
const TokenHeader = "X-Scanner-Operator-Token"

// credentials are those in a request's headers. One of the two suffices.
type credentials struct {
	token, bearer string
}

// credentialsOf reads the credentials from the headers. It ignores credentials that are longer than any token.
func credentialsOf(header http.Header) credentials {
	c := credentials{token: header.Get(TokenHeader)}
	c.bearer, _ = strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	if len(c.token)+len(c.bearer) > maxCredentialBytes {
		return credentials{}
	}
	return c
}

// hash returns the cache key of a verdict about these credentials for a Scanner.
func (c credentials) hash(scanner types.NamespacedName) [sha256.Size]byte {
	// NUL separates the parts unambiguously: headers cannot contain it, and names are validated.
	return sha256.Sum256([]byte(strings.Join([]string{scanner.Namespace, scanner.Name, c.token, c.bearer}, "\x00")))
}

// valid reports whether a Scanner could have this name.
func valid(scanner types.NamespacedName) bool {
	return len(validation.IsDNS1123Label(scanner.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(scanner.Name)) == 0
}

// verdict is the UID of the Scanner whose credentials were accepted, or errUnauthorized.
type verdict struct {
	uid types.UID
	err error
}

// authenticate checks the credentials of a request against the Scanner's Secrets and returns the Scanner's UID. errUnauthorized means that
// they do not match. Any other error means that they could not be checked.
func (s *Server) authenticate(ctx context.Context, scanner types.NamespacedName, header http.Header) (types.UID, error) {
	shown := credentialsOf(header)
	if shown == (credentials{}) || !valid(scanner) {
		return "", errUnauthorized
	}
	hash := shown.hash(scanner)
	if known, found := s.verdicts.Get(hash); found {
		return known.(verdict).uid, known.(verdict).err
	}
	looked, err, _ := s.lookupFlights.Do(scanner.String(), func() (any, error) { return s.lookUp(ctx, scanner) })
	var uid types.UID
	if err == nil {
		found := looked.(*secrets)
		if uid, err = found.uid, found.verify(shown, s.Clock.Now()); errors.Is(err, errUnauthorized) {
			s.logOncePerMinute(slog.LevelWarn, scanner, "the webhook's secret is not the Scanner's")
		}
	}
	switch {
	case err == nil, errors.Is(err, errUnauthorized):
		s.verdicts.Add(hash, verdict{uid, err}, verdictAge)
	case !errors.Is(err, errBusy):
		s.logOncePerMinute(slog.LevelError, scanner, "cannot verify the sender of a webhook", "error", err)
	}
	return uid, err
}

// secrets are the credentials that a Scanner accepts from webhooks. They are not kept longer than for one lookup.
type secrets struct {
	uid types.UID
	// token and psk are empty if the Scanner references none. The errors are why a referenced Secret cannot be read.
	token, psk       []byte
	tokenErr, pskErr error
}

// lookUp reads a Scanner and its secrets from the API server. Namespaces that are known to have a Scanner for Clair have their own rate
// limit, so that requests with invented names cannot use it up.
func (s *Server) lookUp(ctx context.Context, name types.NamespacedName) (*secrets, error) {
	rate := ""
	if _, met := s.knownNamespaces.Get(name.Namespace); met {
		rate = name.Namespace
	}
	if s.lookups.Take(rate) > 0 {
		return nil, errBusy
	}
	// Other requests may share this lookup, so it must not end with this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	scanner, err := s.scanner(ctx, name)
	if err != nil {
		return nil, err
	}
	s.knownNamespaces.Add(name.Namespace, true, namespaceAge)
	settings, found := scanner.Spec.Backend.Clair, &secrets{uid: scanner.UID}
	if ref := settings.WebhookTokenSecretRef; ref != nil {
		var data map[string][]byte
		data, found.tokenErr = s.secret(ctx, name, ref.Name)
		found.token = bytes.TrimSpace(data[ref.Key])
	}
	if settings.AuthSecretRef != nil {
		var auth api.Auth
		auth, found.pskErr = s.auth(ctx, name, settings.AuthSecretRef.Name)
		found.psk = auth.Key
	}
	if found.tokenErr == nil && found.pskErr == nil && len(found.token) == 0 && len(found.psk) == 0 {
		s.logOncePerMinute(slog.LevelWarn, name, "the Scanner has no secret that authenticates webhooks: set spec.backend.clair.webhookTokenSecretRef or authSecretRef, "+
			"and check that the Secret has its key")
	}
	return found, nil
}

// scanner reads a Scanner with the engine Clair. errUnauthorized means that there is none of this name.
func (s *Server) scanner(ctx context.Context, name types.NamespacedName) (*v1alpha1.Scanner, error) {
	scanner := &v1alpha1.Scanner{}
	switch err := s.Cluster.Get(ctx, name, scanner); {
	case apierrors.IsNotFound(err):
		// The name is not logged, since anybody can send any name.
		s.logOncePerMinute(slog.LevelWarn, types.NamespacedName{}, "webhook for a Scanner that does not exist: check notifier.webhook.target in Clair's configuration")
		return nil, errUnauthorized
	case apierrors.IsForbidden(err):
		s.logOncePerMinute(slog.LevelWarn, types.NamespacedName{}, "webhook for a namespace whose Scanners the notifier may not read: "+
			"the operator does not watch the namespace, or it has no RoleBinding to the ClusterRole scanner-operator-notifier-clair-webhooks", "error", err)
		return nil, errUnauthorized
	case err != nil:
		return nil, fmt.Errorf("cannot read the Scanner: %w", err)
	case scanner.Spec.Backend.Type != v1alpha1.BackendClair || scanner.Spec.Backend.Clair == nil:
		s.logOncePerMinute(slog.LevelWarn, name, "webhook for a Scanner with another engine")
		return nil, errUnauthorized
	}
	return scanner, nil
}

// auth reads the pre-shared key. If the Secret is missing or has no usable key, the key is empty and no signature is accepted.
func (s *Server) auth(ctx context.Context, scanner types.NamespacedName, name string) (api.Auth, error) {
	data, err := s.secret(ctx, scanner, name)
	if err != nil || data == nil {
		return api.Auth{}, err
	}
	auth, err := api.ParseAuth(data)
	if err != nil {
		s.logOncePerMinute(slog.LevelWarn, scanner, "the pre-shared key cannot be used", "secret", name, "key", api.SecretKey, "error", err)
	}
	return auth, nil
}

// secret returns the data of a Secret, or nil if there is none. The error may contain kubectl commands that grant access: it is for the log
// and must not reach the sender of the webhook.
func (s *Server) secret(ctx context.Context, scanner types.NamespacedName, name string) (map[string][]byte, error) {
	secret, err := s.Secrets.Secrets(scanner.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.logOncePerMinute(slog.LevelWarn, scanner, "there is no such Secret", "secret", name)
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("secret %s: %s", name, s.GrantCommands(scanner.Namespace, name))
	case err != nil:
		return nil, fmt.Errorf("cannot read secret %s: %s", name, apierrors.ReasonForError(err))
	}
	return secret.Data, nil
}

// verify compares the shown credentials with the Scanner's. If none match, it returns the error of an unreadable Secret that could have
// matched, or else errUnauthorized.
func (found *secrets) verify(shown credentials, now time.Time) error {
	var err error
	if shown.token != "" {
		if len(found.token) > 0 && equalConstantTime(shown.token, found.token) {
			return nil
		}
		err = found.tokenErr
	}
	if shown.bearer != "" {
		if len(found.psk) > 0 && api.VerifyToken(shown.bearer, found.psk, []string{api.NotifierIssuer}, now) == nil {
			return nil
		}
		err = errors.Join(err, found.pskErr)
	}
	if err != nil {
		return err
	}
	return errUnauthorized
}

// equalConstantTime compares in a time that depends on neither the content nor the length of want.
func equalConstantTime(shown string, want []byte) bool {
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256(want)
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
