package identity

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
)

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

// String names the account in messages.
func (a Account) String() string { return "ServiceAccount " + a.Namespace + "/" + a.Name }

// AccountOf returns the ServiceAccount that a token of Kubernetes belongs to. It does not verify the token, which must be the pod's own
// (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens).
func AccountOf(token string) (Account, error) {
	var claims struct {
		Subject string `json:"sub"`
	}
	if err := decodeClaims(token, &claims); err != nil {
		return Account{}, err
	}
	namespace, name, found := strings.Cut(strings.TrimPrefix(claims.Subject, "system:serviceaccount:"), ":")
	if !found {
		return Account{}, errors.New("the token is not one of a ServiceAccount")
	}
	return Account{Namespace: namespace, Name: name}, nil
}

// errNotJWT is returned for a token without readable claims. Errors of the decoder could quote the token.
var errNotJWT = errors.New("the token has no readable claims")

// decodeClaims decodes the claims of a JSON Web Token (RFC 7519, 7.2) without verifying it.
func decodeClaims(token string, into any) error {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return errNotJWT
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(claims, into) != nil {
		return errNotJWT
	}
	return nil
}
