package restapi

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds of the codes that sign in, which the OpenAPI document states.
const (
	codeTTL         = 60 * time.Second
	codeBytes       = 32
	maxCodesPerUser = 4 // of a tenant (tenantOf)
	// maxCodes bounds the space for the tokens of all codes: 256 tokens of maxTokenBytes are 4 MiB.
	maxCodes = 256
)

// sessionCodes are the codes that sign in once in place of a token. They are in the store, so that each replica knows them and one of them accepts a
// code once. The store has the token sealed with a key that only the code gives: neither a code nor a token can be read from it.
//
// A code has too many bits to be guessed. An unknown code costs one read of the store, and no request to the API server. The methods may be called
// concurrently.
type sessionCodes struct {
	store Store
	clock clock.PassiveClock
	// lookups bounds what requests without a token read from the store.
	lookups *limits.Pool
}

// codeLength is the length of a code in characters.
var codeLength = base64.RawURLEncoding.EncodedLen(codeBytes)

// create returns a code for the token of a user, and when the code expires. It replaces the oldest code of a tenant that has maxCodesPerUser. It
// refuses if maxCodes are waiting.
func (s *sessionCodes) create(ctx context.Context, user, token string) (code string, expires time.Time, err error) {
	random := make([]byte, codeBytes)
	_, _ = rand.Read(random) // It never returns an error.
	code = base64.RawURLEncoding.EncodeToString(random)
	aead, err := cipherOf(code)
	if err != nil {
		return "", time.Time{}, err
	}
	expires = s.clock.Now().Add(codeTTL)
	err = s.store.SaveSessionCode(ctx, store.SessionCode{
		Hash: hashOf(code), Owner: hashOf(kubeauth.TenantOf(user)), ExpiresAt: expires,
		//nolint:gosec // The cipher makes the nonce itself, and requires an empty one.
		Sealed: base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(token), nil)),
	}, maxCodesPerUser, maxCodes)
	if errors.Is(err, store.ErrTooManyCodes) {
		err = unavailable("too many codes wait to be used; retry later")
	}
	return code, expires, err
}

// redeem returns the token of a code and deletes the code. address is where the request comes from.
func (s *sessionCodes) redeem(ctx context.Context, address, code string) (token string, err error) {
	sealed, err := s.take(ctx, address, code)
	if errors.Is(err, store.ErrNotFound) {
		return "", newProblem(restv1.ReasonUnauthorized, "the code was used before, or is older than %d seconds: run kubectl scanner ui again, or sign in with a token",
			int(codeTTL.Seconds()))
	}
	if err != nil {
		return "", err
	}
	aead, err := cipherOf(code)
	if err != nil {
		return "", err
	}
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", err
	}
	opened, err := aead.Open(nil, nil, text, nil)
	return string(opened), err
}

// take returns the sealed token of a code and deletes the code. It returns store.ErrNotFound for any text that is no code, at once if it cannot be
// one.
func (s *sessionCodes) take(ctx context.Context, address, code string) (sealed string, err error) {
	if len(code) != codeLength {
		return "", store.ErrNotFound
	}
	release, err := acquireBriefly(ctx, s.lookups, address)
	if err != nil {
		return "", err
	}
	defer release()
	return s.store.TakeSessionCode(ctx, hashOf(code))
}

// hashOf returns the SHA-256 in hexadecimal.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// cipherOf returns the cipher that seals the token of a code. Its key does not follow from the code's hash.
func cipherOf(code string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(code), nil, "scanner-operator session code v1", sha256.Size)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// CreateSessionCode implements restv1.StrictServerInterface.
func (a operations) CreateSessionCode(ctx context.Context, _ restv1.CreateSessionCodeRequestObject) (restv1.CreateSessionCodeResponseObject, error) {
	c := callerOf(ctx)
	if c.cookie {
		return nil, newProblem(restv1.ReasonForbidden, "a code is for the token of a header (Authorization: Bearer <token>); the browser of this cookie is signed in already")
	}
	release, err := a.writes.acquire(ctx, c.user.Username)
	if err != nil {
		return nil, err
	}
	defer release()
	code, expires, err := a.codes.create(ctx, c.user.Username, c.token)
	if err != nil {
		return nil, err
	}
	return createdCode{restv1.CreateSessionCode200JSONResponse{Code: code, ExpirationTime: expires.UTC(), Path: a.BasePath + "/"}}, nil
}

// createdCode is a response that must not be stored.
type createdCode struct {
	restv1.CreateSessionCode200JSONResponse
}

// VisitCreateSessionCodeResponse implements restv1.CreateSessionCodeResponseObject.
func (c createdCode) VisitCreateSessionCodeResponse(w http.ResponseWriter) error {
	w.Header().Set("Cache-Control", "no-store")
	return c.CreateSessionCode200JSONResponse.VisitCreateSessionCodeResponse(w)
}
