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
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/grant"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// secretMemory is how long a Secret is remembered, in memory only: images of one namespace share them.
	secretMemory = 30 * time.Second
	// secretTimeout bounds one question to the API server.
	secretTimeout = 5 * time.Second
	// maxSecrets bounds how many different pull secrets are used for an image, those of ServiceAccounts included.
	maxSecrets = 20
	// maxServiceAccounts bounds how many of them are looked at for an image.
	maxServiceAccounts = 5
)

// secrets reads Secrets by name, where a RoleBinding of their namespace lets it.
type secrets struct {
	reader client.Reader
	clock  clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]rememberedSecret
}

type rememberedSecret struct {
	data  map[string][]byte
	err   error
	until time.Time
}

// get returns what is in a Secret. Errors are remembered, too, but for those of who asks.
func (s *secrets) get(ctx context.Context, name types.NamespacedName) (map[string][]byte, error) {
	if known, found := s.recall(name); found {
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
		s.known = map[types.NamespacedName]rememberedSecret{}
	}
	s.known[name] = rememberedSecret{data: secret.Data, err: err, until: s.clock.Now().Add(secretMemory)}
	return secret.Data, err
}

func (s *secrets) recall(name types.NamespacedName) (rememberedSecret, bool) {
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
	if !nameOfSecret(name) {
		return failure(ReasonSecretMissing, fmt.Sprintf("%q is not a name of a Secret", name))
	}
	data, err := e.secrets.get(ctx, types.NamespacedName{Namespace: namespace, Name: name})
	switch {
	case apierrors.IsForbidden(err):
		return failure(ReasonSecretForbidden, "the operator may not read the Secret; to allow it: "+e.howToGrant(namespace, grant.Secrets, name))
	case apierrors.IsNotFound(err):
		return failure(ReasonSecretMissing, fmt.Sprintf("there is no Secret %s in namespace %s", name, namespace))
	case err != nil:
		return failure(v1alpha1.ReasonBackendError, fmt.Sprintf("cannot read Secret %s in namespace %s: %s", name, namespace, whyNotRead(err)))
	}
	auth, err := api.ParseAuth(data)
	if err != nil {
		return failure(ReasonSecretMissing, fmt.Sprintf("key %q of Secret %s in namespace %s: %s", api.SecretKey, name, namespace, err))
	}
	return auth, nil
}

// nameOfSecret says whether a Secret can have a name. The API server takes any text for a pod's pull secret.
func nameOfSecret(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// pullSecrets are those of an image: what they hold by name, nothing for those that cannot be read, and the names of
// those that the operator may not read, and of ServiceAccounts that it may not ask for more.
type pullSecrets struct {
	data                map[string]map[string][]byte
	forbidden, accounts []string
}

// pullSecrets reads those of an image's pods. What counts for the whole cluster is fetched without any. Errors are
// *backend.Failure.
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
		if !nameOfSecret(name) {
			read.data[name] = nil
			continue
		}
		data, err := e.secrets.get(ctx, types.NamespacedName{Namespace: img.Namespace, Name: name})
		switch {
		case apierrors.IsForbidden(err):
			read.forbidden = append(read.forbidden, name)
		case err != nil && !apierrors.IsNotFound(err):
			return read, notReadable("pull secret", name, err)
		}
		read.data[name] = data
	}
	return read, nil
}

// notReadable is about an object of the pods' namespace which is there, perhaps, and may be read.
func notReadable(kind, name string, err error) *backend.Failure {
	return &backend.Failure{
		Reason: v1alpha1.ReasonBackendError, Message: fmt.Sprintf("cannot read %s %s of the image's pods: %s", kind, name, whyNotRead(err)),
	}
}

// whyNotRead is the API server's reason. The rest of an error may be anything.
func whyNotRead(err error) metav1.StatusReason {
	return cmp.Or(apierrors.ReasonForError(err), "the API server gave no answer")
}

// secretNames are the pull secrets that pods name, and those that their ServiceAccounts have now: admission copies them
// into pods, but only into those that are made later. Forbidden are the ServiceAccounts that the operator may not read.
func (e *Engines) secretNames(ctx context.Context, img backend.Image) (names, forbidden []string, err error) {
	names = slices.Clone(img.PullSecrets)
	for _, name := range img.ServiceAccounts[:min(len(img.ServiceAccounts), maxServiceAccounts)] {
		ctx, cancel := context.WithTimeout(ctx, secretTimeout)
		defer cancel()
		var account corev1.ServiceAccount
		err := e.Reader.Get(ctx, types.NamespacedName{Namespace: img.Namespace, Name: name}, &account)
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, name)
		case err != nil && !apierrors.IsNotFound(err):
			return nil, nil, notReadable("ServiceAccount", name, err)
		}
		for _, reference := range account.ImagePullSecrets {
			if !slices.Contains(names, reference.Name) {
				names = append(names, reference.Name)
			}
		}
	}
	return names[:min(len(names), maxSecrets)], forbidden, nil
}

// howToGrant is what to run so that the manager may read these objects of a namespace and nothing else.
func (e *Engines) howToGrant(namespace, resource string, names ...string) string {
	prefix := "scanner-operator-manager-"
	if resource != grant.Secrets {
		prefix += resource + "-"
	}
	// A name of its own for each set of objects, so that another one needs no change of the first one's Role.
	role := prefix + strings.Join(names, "-")
	if len(names) > 1 || len(role) > 80 {
		sum := sha256.Sum256([]byte(strings.Join(names, "/")))
		role = prefix + hex.EncodeToString(sum[:4])
	}
	return grant.Commands(grant.Account{Namespace: e.Namespace, Name: e.ServiceAccount}, namespace, role, resource, names...)
}
