package api

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// tokenLifetime is longer than a request takes to reach Clair.
	tokenLifetime = time.Minute
	// tokenLeeway is Clair's own tolerance for differing clocks (clair, middleware/auth/httpauth_psk.go).
	tokenLeeway = 15 * time.Second
	// minKeyBytes is the minimum for HS256 (RFC 7518, section 3.2). Clair accepts shorter keys, which can be guessed.
	minKeyBytes = 32
	// maxTokenBytes bounds tokens before parsing: Clair's have some 200 bytes.
	maxTokenBytes = 4 << 10
)

// NotifierIssuer is the issuer in the tokens of Clair's webhooks (clair, initialize/services.go).
const NotifierIssuer = "clair-notifier"

// Auth is a pre-shared key and the issuer that Clair knows its user by: auth.psk of Clair's configuration.
type Auth struct {
	// Key is the decoded key, see ParseKey.
	Key []byte
	// Issuer must be among auth.psk.iss.
	Issuer string
}

// ParseKey decodes a key from the base64 in Clair's configuration. White space around it is ignored, because files end with a line break.
func ParseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	switch {
	case err != nil:
		return nil, errors.New("must be the base64 of auth.psk.key in Clair's configuration") // the decoder's error may quote the key
	case len(key) < minKeyBytes:
		return nil, fmt.Errorf("must have at least %d bytes: give Clair's auth.psk.key as many", minKeyBytes)
	}
	return key, nil
}

// SecretKey is the key of a Secret that holds the pre-shared key.
const SecretKey = "key"

const (
	// secretIssuer is the key of a Secret that may hold the issuer.
	secretIssuer = "issuer"
	// defaultIssuer is the issuer if the Secret has none.
	defaultIssuer = "scanner-operator"
	// maxIssuerBytes bounds the issuer, since it is part of a header of each request to Clair.
	maxIssuerBytes = 256
)

// ParseAuth reads the data of a Secret. Errors are those of ParseKey, about SecretKey, or about the issuer.
func ParseAuth(secret map[string][]byte) (Auth, error) {
	key, err := ParseKey(string(secret[SecretKey]))
	if err != nil {
		return Auth{}, err
	}
	issuer := cmp.Or(strings.TrimSpace(string(secret[secretIssuer])), defaultIssuer)
	if len(issuer) > maxIssuerBytes {
		return Auth{}, fmt.Errorf("key %q beside it must have at most %d bytes", secretIssuer, maxIssuerBytes)
	}
	return Auth{Key: key, Issuer: issuer}, nil
}

// token returns a signed token for one request.
func (a Auth) token(now time.Time) (string, error) {
	if len(a.Key) < minKeyBytes || a.Issuer == "" {
		return "", fmt.Errorf("the pre-shared key for Clair must have at least %d bytes, and a name of the issuer", minKeyBytes)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: a.Key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("token for Clair: %w", err)
	}
	// The token is backdated, as Clair's own are: the server's clock may be behind.
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: a.Issuer, IssuedAt: jwt.NewNumericDate(now.Add(-tokenLifetime)),
		NotBefore: jwt.NewNumericDate(now.Add(-tokenLifetime)), Expiry: jwt.NewNumericDate(now.Add(tokenLifetime)),
	}).Serialize()
}

// VerifyToken checks that a token was signed with this key by one of these issuers and is valid now, as Clair does. Unlike Clair, it
// refuses a token that never expires. Signatures are compared in constant time.
func VerifyToken(token string, key []byte, issuers []string, now time.Time) error {
	switch {
	case len(key) < minKeyBytes:
		return fmt.Errorf("a key to verify tokens with must have at least %d bytes", minKeyBytes)
	case len(token) > maxTokenBytes:
		return fmt.Errorf("the token has more than %d bytes", maxTokenBytes)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512})
	if err != nil {
		return errors.New("not a token that is signed with HS256, HS384 or HS512") // the parser's error may quote the token
	}
	var claims jwt.Claims
	if err := parsed.Claims(padded(key), &claims); err != nil {
		return errors.New("the token is not signed with this key")
	}
	switch {
	case claims.Expiry == nil:
		return errors.New("the token never expires")
	case !slices.Contains(issuers, claims.Issuer):
		return fmt.Errorf("the token's issuer is none of %q", issuers)
	}
	if err := claims.ValidateWithLeeway(jwt.Expected{Time: now}, tokenLeeway); err != nil {
		return fmt.Errorf("the token is not valid now: %w", err)
	}
	return nil
}

// padded returns a key that is equivalent for HMAC, which pads with zeros itself (RFC 2104, section 2). It has the length that go-jose
// requires for HS512.
func padded(key []byte) []byte {
	return append(slices.Clone(key), make([]byte, max(0, 64-len(key)))...)
}
