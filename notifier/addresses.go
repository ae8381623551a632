package notifier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// secretTimeout bounds one request to the API server.
const secretTimeout = 5 * time.Second

// maxAddressBytes bounds a webhook URL. Slack's have about 80 bytes.
const maxAddressBytes = 2048

// maxTokenBytes bounds the token of a Slack app. Tokens have up to about 200 bytes (https://docs.slack.dev/authentication/tokens).
const maxTokenBytes = 1024

// tokenPattern has no space and no line break, so that a token is one value of a header.
var tokenPattern = regexp.MustCompile(`^xox[a-z](\.xox[a-z])?-[A-Za-z0-9.-]+$`)

// SecretAddresses reads webhook URLs and tokens from Secrets, by name and for each delivery. It caches nothing.
type SecretAddresses struct {
	client coreclient.SecretsGetter
	// selfNamespace and selfName are the notifier's own ServiceAccount, for the advice on how to grant access.
	selfNamespace, selfName string
	// hosts that the notifier may post to, in lower case, with a port if it is not 443.
	hosts map[string]bool
}

// NewSecretAddresses returns Addresses for https URLs of the given hosts, each "host" (port 443) or "host:port".
func NewSecretAddresses(client coreclient.SecretsGetter, selfNamespace, selfName string, hosts []string) *SecretAddresses {
	a := &SecretAddresses{client: client, selfNamespace: selfNamespace, selfName: selfName, hosts: map[string]bool{}}
	for _, host := range hosts {
		if host = strings.ToLower(strings.TrimSpace(host)); host != "" {
			a.hosts[strings.TrimSuffix(host, ":443")] = true
		}
	}
	return a
}

// Address implements Addresses.
func (a *SecretAddresses) Address(ctx context.Context, ref announce.ReceiverRef) (string, *announce.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret, err := a.client.Secrets(ref.Namespace).Get(ctx, ref.SecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", permanent(announce.ReasonSecretForbidden, GrantCommands(ref.Namespace, ref.SecretName, a.selfNamespace, a.selfName))
	case apierrors.IsNotFound(err):
		return "", permanent(announce.ReasonSecretNotFound, fmt.Sprintf("there is no Secret %s in namespace %s", ref.SecretName, ref.Namespace))
	case err != nil:
		return "", &announce.Outcome{
			Result: announce.Temporary, Reason: announce.ReasonClusterAPI,
			Message: fmt.Sprintf("cannot read Secret %s in namespace %s: %s", ref.SecretName, ref.Namespace, apierrors.ReasonForError(err)),
		}
	}
	value, found := secret.Data[ref.SecretKey]
	if !found {
		return "", permanent(announce.ReasonSecretNotFound,
			fmt.Sprintf("Secret %s in namespace %s has no key %s", ref.SecretName, ref.Namespace, ref.SecretKey))
	}
	// Secrets made from files or with echo end with a line break.
	address := strings.TrimSpace(string(value))
	reason, problem := announce.ReasonInvalidURL, ""
	if ref.Type == announce.ReceiverTypeSlackApp {
		reason, problem = announce.ReasonInvalidToken, invalidToken(address)
	} else {
		problem = a.invalidReason(address)
	}
	if problem != "" {
		return "", permanent(reason, fmt.Sprintf("key %s of Secret %s in namespace %s %s", ref.SecretKey, ref.SecretName, ref.Namespace, problem))
	}
	return address, nil
}

// invalidToken returns what is wrong with a token, or "". The text contains no part of it.
func invalidToken(token string) string {
	switch {
	case token == "":
		return "is empty"
	case len(token) > maxTokenBytes, !tokenPattern.MatchString(token):
		return "does not hold the bot token of a Slack app: it begins with xoxb-, and is under OAuth & Permissions of the app"
	}
	return ""
}

// invalidReason returns what is wrong with a URL, or "". The text contains no part of the URL, which is a secret.
func (a *SecretAddresses) invalidReason(address string) string {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return "is empty"
	case len(address) > maxAddressBytes:
		return "is too long for a URL"
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return "is not an https URL"
	case u.User != nil:
		return "holds a URL with a user name, which is not allowed"
	case !a.hosts[strings.TrimSuffix(strings.ToLower(u.Host), ":443")]:
		return "holds a URL of a host that the notifier may not post to (its flag --allowed-webhook-hosts lists the allowed ones)"
	}
	return ""
}

// GrantCommands returns the kubectl commands that let a ServiceAccount read this one Secret and nothing else.
func GrantCommands(namespace, secret, accountNamespace, account string) string {
	// Each Secret gets its own Role, so that a second one needs no change of the first.
	role := "scanner-operator-notifier-" + secret
	if len(role) > 80 {
		sum := sha256.Sum256([]byte(secret))
		role = role[:63] + "-" + hex.EncodeToString(sum[:4])
	}
	// Only the commands contain the names. So the whole text fits into an event even with the longest names.
	return "the notifier may not read the Secret; to allow it: " +
		preflight.GrantCommands(preflight.Account{Namespace: accountNamespace, Name: account}, namespace, role, preflight.Secrets, secret)
}

func permanent(reason, message string) *announce.Outcome {
	return &announce.Outcome{Result: announce.Permanent, Reason: reason, Message: message}
}
