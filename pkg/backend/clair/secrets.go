package clair

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// secretTTL is how long a Secret is cached, in memory only: images of one namespace share Secrets.
	secretTTL = 30 * time.Second
	// secretTimeout bounds one request to the API server.
	secretTimeout = 5 * time.Second
	// maxSecrets bounds how many different pull secrets are used for one image, including those of ServiceAccounts.
	maxSecrets = 20
	// maxServiceAccounts bounds how many ServiceAccounts are read for one image.
	maxServiceAccounts = 5
)

// secrets reads and caches Secrets by name. A RoleBinding in each namespace has to allow that.
type secrets struct {
	reader client.Reader
	clock  clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]cachedSecret
}

type cachedSecret struct {
	data  map[string][]byte
	err   error
	until time.Time
}

// get returns the data of a Secret. Errors are cached too, except those of the caller's context.
func (s *secrets) get(ctx context.Context, name types.NamespacedName) (map[string][]byte, error) {
	if known, found := s.cached(name); found {
		return known.data, known.err
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	err := s.reader.Get(ctx, name, &secret)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.NamespacedName]cachedSecret{}
	}
	s.known[name] = cachedSecret{data: secret.Data, err: err, until: s.clock.Now().Add(secretTTL)}
	return secret.Data, err
}

func (s *secrets) cached(name types.NamespacedName) (cachedSecret, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for name, known := range s.known {
		if !now.Before(known.until) {
			delete(s.known, name)
		}
	}
	known, found := s.known[name]
	return known, found
}

// auth reads the pre-shared key of a Scanner. Errors are *backend.Failure.
func (e *Engines) auth(ctx context.Context, namespace, name string) (api.Auth, error) {
	failure := func(reason, message string) (api.Auth, error) {
		return api.Auth{}, &backend.Failure{Reason: reason, Message: "spec.backend.clair.authSecretRef: " + message}
	}
	if !isSecretName(name) {
		return failure(backend.ReasonClairSecretMissing, fmt.Sprintf("%q is not a name of a Secret", name))
	}
	data, err := e.secrets.get(ctx, types.NamespacedName{Namespace: namespace, Name: name})
	switch {
	case apierrors.IsForbidden(err):
		return failure(backend.ReasonClairSecretForbidden, "the operator may not read the Secret; to allow it: "+e.grantCommands(namespace, preflight.Secrets, name))
	case apierrors.IsNotFound(err):
		return failure(backend.ReasonClairSecretMissing, fmt.Sprintf("there is no Secret %s in namespace %s", name, namespace))
	case err != nil:
		return failure(v1alpha1.ReasonBackendError, fmt.Sprintf("cannot read Secret %s in namespace %s: %s", name, namespace, readErrorReason(err)))
	}
	auth, err := api.ParseAuth(data)
	if err != nil {
		return failure(backend.ReasonClairSecretMissing, fmt.Sprintf("key %q of Secret %s in namespace %s: %s", api.SecretKey, name, namespace, err))
	}
	return auth, nil
}

// isSecretName reports whether a Secret can have this name. The API server accepts any text as a pod's pull secret.
func isSecretName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// pullSecrets holds the pull secrets of an image. data has the content by Secret name, nil for Secrets that cannot be read. forbidden are
// the Secrets, and accounts the ServiceAccounts, that the operator may not read.
type pullSecrets struct {
	data                map[string]map[string][]byte
	forbidden, accounts []string
}

// pullSecrets reads the pull secrets of an image's pods. It returns none in the cluster scope. Errors are *backend.Failure.
func (e *Engines) pullSecrets(ctx context.Context, img backend.Image) (pullSecrets, error) {
	read := pullSecrets{data: map[string]map[string][]byte{}}
	if img.Scope == store.Cluster {
		return read, nil
	}
	names, accounts, err := e.secretNames(ctx, img)
	read.accounts = accounts
	if err != nil {
		return read, err
	}
	for _, name := range names {
		if !isSecretName(name) {
			read.data[name] = nil
			continue
		}
		data, err := e.secrets.get(ctx, types.NamespacedName{Namespace: img.Namespace, Name: name})
		switch {
		case apierrors.IsForbidden(err):
			read.forbidden = append(read.forbidden, name)
		case err != nil && !apierrors.IsNotFound(err):
			return read, readFailure("pull secret", name, err)
		}
		read.data[name] = data
	}
	return read, nil
}

// readFailure returns the failure for an object that could not be read for another reason than being missing or forbidden.
func readFailure(kind, name string, err error) *backend.Failure {
	return &backend.Failure{
		Reason: v1alpha1.ReasonBackendError, Message: fmt.Sprintf("cannot read %s %s of the image's pods: %s", kind, name, readErrorReason(err)),
	}
}

// readErrorReason returns the API server's reason only: the rest of an error may contain anything.
func readErrorReason(err error) metav1.StatusReason {
	return cmp.Or(apierrors.ReasonForError(err), "the API server gave no answer")
}

// secretNames returns the pull secrets that the pods name, and those that their ServiceAccounts have now. Admission copies the latter into
// pods, but only into pods that are created later. forbidden are the ServiceAccounts that the operator may not read.
func (e *Engines) secretNames(ctx context.Context, img backend.Image) (names, forbidden []string, err error) {
	names = slices.Clone(img.PullSecrets)
	for _, name := range img.ServiceAccounts[:min(len(img.ServiceAccounts), maxServiceAccounts)] {
		account, err := e.serviceAccount(ctx, types.NamespacedName{Namespace: img.Namespace, Name: name})
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, name)
		case err != nil && !apierrors.IsNotFound(err):
			return nil, nil, readFailure("ServiceAccount", name, err)
		}
		for _, reference := range account.ImagePullSecrets {
			if !slices.Contains(names, reference.Name) {
				names = append(names, reference.Name)
			}
		}
	}
	return names[:min(len(names), maxSecrets)], forbidden, nil
}

// serviceAccount reads a ServiceAccount within secretTimeout.
func (e *Engines) serviceAccount(ctx context.Context, name types.NamespacedName) (corev1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var account corev1.ServiceAccount
	err := e.Reader.Get(ctx, name, &account)
	return account, err
}

// grantCommands returns the commands that allow the manager to read these objects of a namespace and nothing else.
func (e *Engines) grantCommands(namespace, resource string, names ...string) string {
	prefix := "scanner-operator-manager-"
	if resource != preflight.Secrets {
		prefix += resource + "-"
	}
	// Each set of objects has its own Role name, so that a new set does not change an earlier Role.
	role := prefix + strings.Join(names, "-")
	if len(names) > 1 || len(role) > 80 {
		sum := sha256.Sum256([]byte(strings.Join(names, "/")))
		role = prefix + hex.EncodeToString(sum[:4])
	}
	return preflight.GrantCommands(preflight.Account{Namespace: e.Namespace, Name: e.ServiceAccount}, namespace, role, resource, names...)
}
