package clairhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/clair"
)

const (
	// verdictAge is how long a verdict stands: a token that was taken away works no longer than that.
	verdictAge  = 10 * time.Second
	maxVerdicts = 10_000
	// lookupTimeout bounds the questions to the API server about one Scanner.
	lookupTimeout = 5 * time.Second
)

// verdict says which Scanner's secret was shown, or that it was not.
type verdict struct {
	uid types.UID
	err error
}

// authenticate finds out whether a request comes from somebody who has the Scanner's secret, and which Scanner that is.
func (s *Server) authenticate(ctx context.Context, scanner types.NamespacedName, shown credentials) (types.UID, error) {
	if shown == (credentials{}) || !valid(scanner) {
		return "", errUnauthorized
	}
	hash := shown.hash(scanner)
	if known, found := s.verdicts.Get(hash); found {
		return known.(verdict).uid, known.(verdict).err
	}
	looked, err, _ := s.looking.Do(scanner.String(), func() (any, error) { return s.look(ctx, scanner) })
	var uid types.UID
	if err == nil {
		found := looked.(*secrets)
		if uid, err = found.uid, found.verify(shown, s.Clock.Now()); errors.Is(err, errUnauthorized) {
			s.say(slog.LevelWarn, scanner, "the secret that a webhook shows is not the Scanner's")
		}
	}
	switch {
	case err == nil, errors.Is(err, errUnauthorized):
		s.verdicts.Add(hash, verdict{uid, err}, verdictAge)
	case !errors.Is(err, errBusy):
		s.say(slog.LevelError, scanner, "cannot find out whom a webhook comes from", "error", err)
	}
	return uid, err
}

// secrets are what a webhook for a Scanner may be known by. They are kept no longer than they are looked at.
type secrets struct {
	uid types.UID
	// token and psk are empty if the Scanner names none; the errors say why one that it names cannot be read.
	token, psk       []byte
	tokenErr, pskErr error
}

// look reads a Scanner and its secrets anew. Namespaces that are known to have a Scanner for Clair have a rate of their own,
// so that invented names keep none of them waiting.
func (s *Server) look(ctx context.Context, name types.NamespacedName) (*secrets, error) {
	rate := ""
	if _, met := s.met.Get(name.Namespace); met {
		rate = name.Namespace
	}
	if !s.lookups.allow(rate) {
		return nil, errBusy
	}
	// Others may wait for the same look.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	scanner, err := s.scanner(ctx, name)
	if err != nil {
		return nil, err
	}
	s.met.Add(name.Namespace, true, namespaceAge)
	settings, found := scanner.Spec.Backend.Clair, &secrets{uid: scanner.UID}
	if ref := settings.WebhookTokenSecretRef; ref != nil {
		var data map[string][]byte
		data, found.tokenErr = s.secret(ctx, name, ref.Name)
		found.token = bytes.TrimSpace(data[ref.Key])
	}
	if settings.AuthSecretRef != nil {
		var auth clair.Auth
		auth, found.pskErr = s.auth(ctx, name, settings.AuthSecretRef.Name)
		found.psk = auth.Key
	}
	if found.tokenErr == nil && found.pskErr == nil && len(found.token) == 0 && len(found.psk) == 0 {
		s.say(slog.LevelWarn, name, "the Scanner has no secret to know its webhooks by: set spec.backend.clair.webhookTokenSecretRef or authSecretRef, "+
			"and see that the Secret has its key")
	}
	return found, nil
}

// scanner reads a Scanner that is for Clair.
func (s *Server) scanner(ctx context.Context, name types.NamespacedName) (*v1alpha1.Scanner, error) {
	scanner := &v1alpha1.Scanner{}
	switch err := s.Cluster.Get(ctx, name, scanner); {
	case apierrors.IsNotFound(err):
		// Not by its name: those come from anybody.
		s.say(slog.LevelWarn, types.NamespacedName{}, "a webhook for a Scanner that is not there: is notifier.webhook.target in Clair's configuration right?")
		return nil, errUnauthorized
	case apierrors.IsForbidden(err):
		s.say(slog.LevelWarn, types.NamespacedName{}, "a webhook for a namespace whose Scanners the notifier may not read: "+
			"it is not to be watched, or has no RoleBinding to the ClusterRole scanner-operator-notifier-clair-webhooks", "error", err)
		return nil, errUnauthorized
	case err != nil:
		return nil, fmt.Errorf("cannot read the Scanner: %w", err)
	case scanner.Spec.Backend.Type != v1alpha1.BackendClair || scanner.Spec.Backend.Clair == nil:
		s.say(slog.LevelWarn, name, "a webhook of Clair for a Scanner with another engine")
		return nil, errUnauthorized
	}
	return scanner, nil
}

// auth reads the pre-shared key. A Secret that is not there, or holds none, is what nobody can have signed with.
func (s *Server) auth(ctx context.Context, scanner types.NamespacedName, name string) (clair.Auth, error) {
	data, err := s.secret(ctx, scanner, name)
	if err != nil || data == nil {
		return clair.Auth{}, err
	}
	auth, err := clair.ParseAuth(data)
	if err != nil {
		s.say(slog.LevelWarn, scanner, "the pre-shared key cannot be used", "secret", name, "key", clair.SecretKey, "error", err)
	}
	return auth, nil
}

// secret reads one Secret; nil if there is none. The kubectl commands that let the notifier read it go to the log: whoever
// sends webhooks has no business with them.
func (s *Server) secret(ctx context.Context, scanner types.NamespacedName, name string) (map[string][]byte, error) {
	secret, err := s.Secrets.Secrets(scanner.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.say(slog.LevelWarn, scanner, "there is no such Secret", "secret", name)
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("secret %s: %s", name, s.HowToGrant(scanner.Namespace, name))
	case err != nil:
		return nil, fmt.Errorf("cannot read secret %s: %s", name, apierrors.ReasonForError(err))
	}
	return secret.Data, nil
}

// verify compares what was shown with what there is. Only when a secret that counts cannot be read, that is the error.
func (found *secrets) verify(shown credentials, now time.Time) error {
	var err error
	if shown.token != "" {
		if len(found.token) > 0 && same(shown.token, found.token) {
			return nil
		}
		err = found.tokenErr
	}
	if shown.bearer != "" {
		if len(found.psk) > 0 && clair.VerifyToken(shown.bearer, found.psk, []string{clair.NotifierIssuer}, now) == nil {
			return nil
		}
		err = errors.Join(err, found.pskErr)
	}
	if err != nil {
		return err
	}
	return errUnauthorized
}

// same compares in a time that tells neither contents nor length.
func same(shown string, want []byte) bool {
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256(want)
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
