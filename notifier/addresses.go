package notifier

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/notifier/alertmanager"
	"github.com/scanner-operator/scanner-operator/notifier/email"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// secretTimeout bounds one request to the API server.
const secretTimeout = 5 * time.Second

// maxAddressBytes bounds a webhook URL. Slack's have about 80 bytes.
const maxAddressBytes = 2048

// maxTokenBytes bounds a token. Those of Slack apps have up to about 200 bytes (https://docs.slack.dev/authentication/tokens).
const maxTokenBytes = 1024

// tokenPattern has no space and no line break, so that a token is one value of a header.
var tokenPattern = regexp.MustCompile(`^xox[a-z](\.xox[a-z])?-[A-Za-z0-9.-]+$`)

// Keys of the Secret of a webhook or a tool beside that of its address. They are those of Flux' notification-controller
// (https://fluxcd.io/flux/components/notification/providers).
const (
	tokenKey          = "token"
	webhookHeadersKey = "headers"
)

// Keys of the credentials of a mail server or an Alertmanager.
const (
	usernameKey = "username"
	passwordKey = "password"
)

// Keys of the credentials with which the notifier gets the access token for a mail server.
const (
	tokenURLKey     = "tokenURL"
	clientIDKey     = "clientID"
	clientSecretKey = "clientSecret"
	scopeKey        = "scope"
)

// Bounds of a webhook's own headers.
const (
	maxHeaders          = 16
	maxHeaderValueBytes = 4096
)

// reservedHeaders are those that the notifier or HTTP itself sets.
var reservedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "X-Signature",
}

// SecretAddresses reads receivers' addresses and credentials from Secrets, by name and for each delivery. It caches nothing.
type SecretAddresses struct {
	client coreclient.SecretsGetter
	// selfNamespace and selfName are the notifier's own ServiceAccount, for the advice on how to grant access.
	selfNamespace, selfName string
	// policy decides which URLs may be requested.
	policy *egress.Policy
}

// NewSecretAddresses returns Addresses for the URLs that the policy allows.
func NewSecretAddresses(client coreclient.SecretsGetter, selfNamespace, selfName string, policy *egress.Policy) *SecretAddresses {
	return &SecretAddresses{client: client, selfNamespace: selfNamespace, selfName: selfName, policy: policy}
}

// Address implements Addresses.
func (a *SecretAddresses) Address(ctx context.Context, ref announce.ReceiverRef) (receiver.Address, *announce.Outcome) {
	if ref.Mail != nil {
		target, invalid := a.mailTarget(*ref.Mail)
		if invalid != nil || ref.SecretName == "" {
			return receiver.Address{Target: target}, invalid
		}
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret, err := a.client.Secrets(ref.Namespace).Get(ctx, ref.SecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return receiver.Address{}, permanent(announce.ReasonSecretForbidden, GrantCommands(ref.Namespace, ref.SecretName, a.selfNamespace, a.selfName))
	case apierrors.IsNotFound(err):
		return receiver.Address{}, permanent(announce.ReasonSecretNotFound, fmt.Sprintf("there is no Secret %s in namespace %s", ref.SecretName, ref.Namespace))
	case err != nil:
		return receiver.Address{}, &announce.Outcome{
			Result: announce.Temporary, Reason: announce.ReasonClusterAPI,
			Message: fmt.Sprintf("cannot read Secret %s in namespace %s: %s", ref.SecretName, ref.Namespace, apierrors.ReasonForError(err)),
		}
	}
	if _, found := secret.Data[ref.SecretKey]; !found && !hasOnlyCertificates(ref, secret.Data) && !hasAccessToken(ref, secret.Data) && !hasClient(ref, secret.Data) {
		return receiver.Address{}, permanent(announce.ReasonSecretNotFound,
			fmt.Sprintf("Secret %s in namespace %s has no key %s", ref.SecretName, ref.Namespace, ref.SecretKey))
	}
	address, invalid := a.parse(ref, secret.Data)
	if invalid == nil {
		address.Certificates, invalid = parseCertificates(secret.Data)
	}
	if invalid != nil {
		return receiver.Address{}, permanent(invalid.reason,
			fmt.Sprintf("key %s of Secret %s in namespace %s %s", invalid.key, ref.SecretName, ref.Namespace, invalid.problem))
	}
	return address, nil
}

// invalidKey is what is wrong with a key of a Secret. The problem contains nothing of its value.
type invalidKey struct{ key, reason, problem string }

// parse validates what a Secret holds for a type of receiver.
func (a *SecretAddresses) parse(ref announce.ReceiverRef, data map[string][]byte) (address receiver.Address, invalid *invalidKey) {
	// Secrets made from files or with echo end with a line break.
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	if ref.Type == announce.ReceiverTypeSlackApp {
		address.Token = value(ref.SecretKey)
		if problem := invalidToken(address.Token); problem != "" {
			return address, &invalidKey{ref.SecretKey, announce.ReasonInvalidToken, problem}
		}
		return address, nil
	}
	var problem string
	if ref.Mail != nil {
		return a.parseMail(ref, data)
	}
	if address.Target, problem = a.target(value(ref.SecretKey)); problem != "" {
		return address, &invalidKey{ref.SecretKey, announce.ReasonInvalidURL, problem}
	}
	switch ref.Type {
	case announce.ReceiverTypeAlertmanager:
		return a.parseAlertmanager(ref, address, data)
	case announce.ReceiverTypeWebhook:
		if address.Token = value(tokenKey); len(address.Token) > maxTokenBytes {
			return address, &invalidKey{tokenKey, announce.ReasonInvalidToken, fmt.Sprintf("is longer than %d bytes", maxTokenBytes)}
		}
		if address.Headers, problem = parseHeaders(data[webhookHeadersKey]); problem != "" {
			return address, &invalidKey{webhookHeadersKey, announce.ReasonInvalidToken, problem}
		}
	case export.TypeDefectDojo, export.TypeDependencyTrack:
		if address.Token = value(tokenKey); invalidAPIKey(address.Token) != "" {
			return address, &invalidKey{tokenKey, announce.ReasonInvalidToken, invalidAPIKey(address.Token)}
		}
	}
	return address, nil
}

// parseCertificates validates the certificates in a Secret of any type of receiver.
func parseCertificates(data map[string][]byte) (receiver.Certificates, *invalidKey) {
	certificates, key, problem := receiver.ParseCertificates(data)
	if problem != "" {
		return certificates, &invalidKey{key, announce.ReasonInvalidToken, problem}
	}
	return certificates, nil
}

// hasOnlyCertificates reports whether a Secret is that of a mail server that requires no password, and has certificates.
func hasOnlyCertificates(ref announce.ReceiverRef, data map[string][]byte) bool {
	return ref.Mail != nil && len(data[usernameKey]) == 0 && len(data[ref.SecretKey]) == 0 && !hasAccessToken(ref, data) && !hasClient(ref, data) &&
		len(data[receiver.AuthoritiesKey])+len(data[receiver.ClientCertificateKey]) > 0
}

// hasAccessToken reports whether a Secret is that of a mail server, and has an access token instead of a password.
func hasAccessToken(ref announce.ReceiverRef, data map[string][]byte) bool {
	return ref.Mail != nil && len(data[tokenKey]) > 0
}

// hasClient reports whether a Secret is that of a mail server, and has credentials with which the notifier gets an access token.
func hasClient(ref announce.ReceiverRef, data map[string][]byte) bool {
	return ref.Mail != nil && len(data[tokenURLKey])+len(data[clientIDKey])+len(data[clientSecretKey]) > 0
}

// parseMail validates the credentials of a mail server. The caller has checked the server.
func (a *SecretAddresses) parseMail(ref announce.ReceiverRef, data map[string][]byte) (address receiver.Address, invalid *invalidKey) {
	address.Target, _ = a.mailTarget(*ref.Mail)
	if hasOnlyCertificates(ref, data) {
		return address, nil
	}
	if hasClient(ref, data) {
		return a.parseClient(ref, address, data)
	}
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	secretKey, limit := ref.SecretKey, maxTokenBytes
	if hasAccessToken(ref, data) {
		if value(ref.SecretKey) != "" {
			return address, &invalidKey{tokenKey, announce.ReasonInvalidToken, "stands beside " + ref.SecretKey + ": use one of them"}
		}
		secretKey, limit, address.IsAccessToken = tokenKey, email.MaxAccessTokenBytes, true
	}
	address.Username, address.Token = value(usernameKey), value(secretKey)
	for key, text := range map[string]string{usernameKey: address.Username, secretKey: address.Token} {
		if text == "" || len(text) > limit || strings.ContainsFunc(text, unicode.IsControl) {
			return address, &invalidKey{key, announce.ReasonInvalidToken, fmt.Sprintf("is empty, has control characters, or is longer than %d bytes", limit)}
		}
	}
	return address, nil
}

// parseClient validates the credentials with which the notifier gets an access token for a mail server. The token server must be allowed as a webhook's
// host is: whoever writes the Secret must not choose what the notifier connects to. It gets the client's secret, so it needs TLS.
func (a *SecretAddresses) parseClient(ref announce.ReceiverRef, address receiver.Address, data map[string][]byte) (receiver.Address, *invalidKey) {
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	for _, key := range []string{ref.SecretKey, tokenKey} {
		if value(key) != "" {
			return address, &invalidKey{tokenURLKey, announce.ReasonInvalidToken, "stands beside " + key + ": use one of them"}
		}
	}
	for _, key := range []string{usernameKey, clientIDKey, clientSecretKey} {
		if text := value(key); text == "" || len(text) > maxTokenBytes || strings.ContainsFunc(text, unicode.IsControl) {
			return address, &invalidKey{key, announce.ReasonInvalidToken, fmt.Sprintf("is empty, has control characters, or is longer than %d bytes", maxTokenBytes)}
		}
	}
	if len(value(scopeKey)) > maxTokenBytes {
		return address, &invalidKey{scopeKey, announce.ReasonInvalidToken, fmt.Sprintf("is longer than %d bytes", maxTokenBytes)}
	}
	server, problem := a.target(value(tokenURLKey))
	if problem == "" && !strings.HasPrefix(server.URL(), "https://") {
		problem = "is not an https URL"
	}
	if problem != "" {
		return address, &invalidKey{tokenURLKey, announce.ReasonInvalidURL, problem}
	}
	address.Username, address.IsAccessToken = value(usernameKey), true
	address.Client = &receiver.ClientCredentials{Server: server, ID: value(clientIDKey), Secret: value(clientSecretKey), Scope: value(scopeKey)}
	return address, nil
}

// parseAlertmanager validates the credentials of an Alertmanager, whose address has been parsed.
func (a *SecretAddresses) parseAlertmanager(ref announce.ReceiverRef, address receiver.Address, data map[string][]byte) (receiver.Address, *invalidKey) {
	value := func(key string) string { return strings.TrimSpace(string(data[key])) }
	var problem string
	if address.Target, problem = a.target(alertsURL(value(ref.SecretKey))); problem != "" {
		return address, &invalidKey{ref.SecretKey, announce.ReasonInvalidURL, problem}
	}
	if address.Headers, problem = parseHeaders(data[webhookHeadersKey]); problem != "" {
		return address, &invalidKey{webhookHeadersKey, announce.ReasonInvalidToken, problem}
	}
	for _, key := range []string{usernameKey, passwordKey, tokenKey} {
		if len(value(key)) > maxTokenBytes || strings.ContainsFunc(value(key), unicode.IsControl) {
			return address, &invalidKey{key, announce.ReasonInvalidToken, fmt.Sprintf("has control characters, or is longer than %d bytes", maxTokenBytes)}
		}
	}
	username, password, token := value(usernameKey), value(passwordKey), value(tokenKey)
	var authorization string
	switch {
	case username != "" && token != "":
		return address, &invalidKey{tokenKey, announce.ReasonInvalidToken, "stands beside username: use one of them"}
	case username != "":
		authorization, address.Token = "Basic "+base64.StdEncoding.EncodeToString([]byte(username+":"+password)), password
	case token != "":
		authorization, address.Token = "Bearer "+token, token
	default:
		return address, nil
	}
	headers := map[string]string{"Authorization": authorization}
	for name, value := range address.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return address, &invalidKey{webhookHeadersKey, announce.ReasonInvalidToken, "has the header Authorization beside username or token: use one of them"}
		}
		headers[name] = value
	}
	address.Headers = headers
	return address, nil
}

// alertsURL returns the URL of the API of an Alertmanager with an address. What is no URL stays as it is.
func alertsURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	return u.JoinPath(alertmanager.Path).String()
}

// mailTarget returns the target for a mail server, or the outcome if mails may not be sent to it.
func (a *SecretAddresses) mailTarget(ref announce.MailRef) (egress.Target, *announce.Outcome) {
	u := &url.URL{Scheme: "smtps", Host: ref.HostPort()}
	if ref.TLS == announce.MailWithoutTLS {
		u.Scheme = "smtp"
	}
	to, allowed := a.policy.Target(u)
	switch {
	case allowed:
		return to, nil
	case u.Scheme == "smtp":
		return to, permanent(announce.ReasonInvalidURL, fmt.Sprintf("%s with tls: None is not allowed. Without TLS, anybody in between can read messages: only the "+
			"administrator can allow that, for one host, with smtp:// before it in the notifier's --allowed-webhook-hosts (Helm: notifier.allowedWebhookHosts)", u.Host))
	}
	return to, permanent(announce.ReasonInvalidURL, "the notifier may not send mails to "+u.Host+". "+receiver.AskForHost)
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

// invalidAPIKey returns what is wrong with the API key of a tool, or "". The text contains no part of it.
func invalidAPIKey(key string) string {
	switch {
	case key == "":
		return "is missing or empty: it holds an API key of the tool"
	case len(key) > maxTokenBytes:
		return fmt.Sprintf("is longer than %d bytes", maxTokenBytes)
	case !httpguts.ValidHeaderFieldValue(key):
		return "has characters that no API key has"
	}
	return ""
}

// target returns the target for a URL, or what is wrong with the URL. The text contains no part of the URL, which is a secret.
func (a *SecretAddresses) target(address string) (to egress.Target, problem string) {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return to, "is empty"
	case len(address) > maxAddressBytes:
		return to, "is too long for a URL"
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return to, "is not an https URL"
	case u.User != nil:
		return to, "holds a URL with a user name, which is not allowed"
	}
	to, allowed := a.policy.Target(u)
	switch {
	case allowed:
		return to, ""
	case u.Scheme == "http":
		return to, "is not an https URL. Without TLS, anybody in between can read messages: only the administrator can allow that, for one host, " +
			"with http:// before it in the notifier's --allowed-webhook-hosts (Helm: notifier.allowedWebhookHosts)"
	}
	return to, "holds a URL of a host that the notifier may not post to. " + receiver.AskForHost
}

// parseHeaders parses a map of header names to values, as YAML, or returns what is wrong with it. The text contains no value.
func parseHeaders(text []byte) (headers map[string]string, problem string) {
	if err := yaml.Unmarshal(text, &headers); err != nil {
		return nil, "is not a map of header names to texts, such as \"Authorization: Bearer …\" (YAML)"
	}
	if len(headers) > maxHeaders {
		return nil, fmt.Sprintf("has more than %d headers", maxHeaders)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch value := headers[name]; {
		case !httpguts.ValidHeaderFieldName(name):
			return nil, "has a name that no header can have"
		case seen[canonical]:
			return nil, fmt.Sprintf("has the header %.64q twice, in upper and lower case", canonical)
		case slices.Contains(reservedHeaders, canonical):
			return nil, fmt.Sprintf("has the header %s, which the notifier sets itself", canonical)
		case len(value) > maxHeaderValueBytes || !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Sprintf("has a value that is too long or has control characters, for the header %.64q", name)
		}
		seen[canonical] = true
	}
	return headers, ""
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
