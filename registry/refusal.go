package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Documentation about credentials that only nodes have, and about identities.
const (
	documentation      = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/"
	nodeCredentialsURL = documentation + "use/private-registries.md#credentials-that-only-nodes-have"
	identitiesURL      = documentation + "operate/cloud-registries.md"
)

// maxNamed bounds how many Secrets a message names.
const maxNamed = 3

// refusals are the results of the attempts to authenticate at a registry that accepted none of them.
type refusals struct {
	// logins are the credentials, and the identity, that the registry refused.
	logins []authn.Authenticator
	// noCredential is why the identity got no credential to present; nil if it got one, or if there is no identity.
	noCredential error
}

// telling orders the failures after which the next reference is tried by how much they say, the most telling highest; 0 for others. A registry that
// refuses anonymous requests may not have the image at all: Docker Hub answers so.
func (p *Puller) telling(reference string, err error) int {
	switch reason(err) {
	case workerapi.ReasonRegistryThrottled:
		return 4 // it may have the image that the others lack
	case workerapi.ReasonPullSecretMissing, workerapi.ReasonNodeCredentials:
		return 3
	case workerapi.ReasonImageNotFound:
		return 2
	case workerapi.ReasonUnauthorized:
		if ref, err := p.parse(reference); err == nil && (len(p.Credentials.For(ref.Context())) > 0 || p.identityLogin(ref.Context()) != nil) {
			return 3
		}
		return 1
	}
	return 0
}

// explainRefusal adds the probable cause and the remedy to the error of a registry that accepted neither the fitting credentials, nor the
// identity, nor an anonymous request. provider is that of the registry; empty for none.
func (c Credentials) explainRefusal(ref name.Reference, provider string, refused refusals, err error) error {
	host, missing := workerapi.CanonicalHost(ref.Context().RegistryStr()), c.unusableFor(ref.Context())
	var unused []string
	if len(missing) > 0 {
		unused = append(unused, describeUnusable(missing)+" cannot be used")
	}
	if refused.noCredential != nil {
		unused = append(unused, refused.noCredential.Error())
	}
	also := strings.Join(unused, ", and ")
	switch {
	case isTemporary(refused.noCredential):
		return describeNoCredential(host, missing, refused.noCredential)
	case reason(err) != workerapi.ReasonUnauthorized:
		if also == "" {
			return err
		}
		// Many registries answer "not found" to clients that may not know of a private image.
		return fmt.Errorf("%w; if it is private: %s", err, also)
	case len(refused.logins) > 0:
		if also != "" {
			also = ", and " + also
		}
		return failure.New(workerapi.ReasonUnauthorized,
			fmt.Errorf("%s refuses %s%s; %s: %w", host, describeLogins(refused.logins), also, remedy(provider, refused.logins), err))
	case refused.noCredential != nil:
		return describeNoCredential(host, missing, refused.noCredential)
	case len(missing) > 0:
		correct := "the pods' imagePullSecrets"
		if name := missing[0].secret; secretName.MatchString(name) {
			correct = fmt.Sprintf("it in the pods' namespace: kubectl create secret docker-registry %s --docker-server=%s …", name, host)
		}
		return failure.New(workerapi.ReasonPullSecretMissing,
			fmt.Errorf("%s requires credentials, and %s; correct %s: %w", host, also, correct, err))
	case workerapi.ProviderOf(host) != "":
		return failure.New(workerapi.ReasonNodeCredentials,
			fmt.Errorf("%s requires credentials, and no pull secret of the image's pods has any; those of the nodes cannot be used: %s, or see %s: %w",
				host, identityAdvice(host, provider), nodeCredentialsURL, err))
	}
	return failure.New(workerapi.ReasonUnauthorized,
		fmt.Errorf("%s requires credentials, and no pull secret of the image's pods has any; give the pods an imagePullSecret, also where only nodes have credentials: see %s: %w",
			host, nodeCredentialsURL, err))
}

// isTemporary reports whether the identity will get a credential later, without anybody's help. What else was refused may not matter then.
func isTemporary(noCredential error) bool {
	return noCredential != nil && slices.Contains([]string{workerapi.ReasonRegistryThrottled, workerapi.ReasonRegistryUnavail}, reason(noCredential))
}

// identityAdvice says how an identity can pull from a cloud's host. provider is the one in the configuration; empty for none.
func identityAdvice(host, provider string) string {
	if provider == "" {
		return fmt.Sprintf("for images that Grype scans, set registries[].provider: %s for this host in the operator's configuration (%s)",
			workerapi.ProviderOf(host), identitiesURL)
	}
	return fmt.Sprintf("registries[].provider is %s for this host, and this pull has no identity (%s)", provider, identitiesURL)
}

// describeNoCredential returns the failure of a registry that requires credentials while the identity gets none. cause has the reason.
// missing are pull secrets that cannot be used either.
func describeNoCredential(host string, missing []unusableEntry, cause error) error {
	also := ""
	if len(missing) > 0 {
		also = "; " + describeUnusable(missing) + " cannot be used either"
	}
	described := &failure.Error{Reason: workerapi.ReasonCatalogFailed}
	var known *failure.Error
	if errors.As(cause, &known) {
		described.Reason, described.RetryAfter, described.Registry = known.Reason, known.RetryAfter, known.Registry
	}
	described.Err = fmt.Errorf("%s requires credentials: %w%s", host, cause, also)
	return described
}

// describeLogins lists the credentials and the identity that a registry refused.
func describeLogins(logins []authn.Authenticator) string {
	var texts []string
	var credentials []Credential
	for _, login := range logins {
		switch login := login.(type) {
		case Credential:
			credentials = append(credentials, login)
		case *identityLogin:
			texts = append(texts, login.String())
		}
	}
	if len(credentials) > 0 {
		texts = slices.Insert(texts, 0, "the credential of "+describePullSecrets(credentials))
	}
	return strings.Join(texts, " and ")
}

// remedy returns what lets a refused login pull.
func remedy(provider string, logins []authn.Authenticator) string {
	if _, isIdentity := logins[0].(*identityLogin); isIdentity {
		return "let it read this repository (" + pullPermissions[provider] + ")"
	}
	return "renew it, or let it read this repository"
}

// describeUnusable lists unusable pull secrets with their problems.
func describeUnusable(all []unusableEntry) string {
	return enumerate(all, func(u unusableEntry) string { return fmt.Sprintf("%q (%s)", u.secret, u.problem) })
}

// describePullSecrets lists the pull secrets that hold the credentials.
func describePullSecrets(all []Credential) string { return enumerate(all, Credential.String) }

// enumerate joins the first maxNamed different names, and adds the number of the others.
func enumerate[T any](all []T, text func(T) string) string {
	var names []string
	for _, one := range all {
		if named := text(one); !slices.Contains(names, named) {
			names = append(names, named)
		}
	}
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return "pull secret " + strings.Join(names, ", ") + more
}
