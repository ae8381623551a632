package restapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// Bounds of the codes that sign in, which the OpenAPI document states.
const (
	codeTTL         = 60 * time.Second
	codeBytes       = 32
	maxCodesPerUser = 4
	// maxCodes bounds the memory for the tokens of all codes: 256 tokens of maxTokenBytes are 4 MiB.
	maxCodes = 256
)

// sessionCodes are the codes that sign in once in place of a token. They are only in memory. Another process therefore does not know them:
// sealing the token in the code would let each replica accept the code once, and would put the token into an address.
//
// A code has too many bits to be guessed. An unknown code costs a hash, and no request to the API server. The methods may be called
// concurrently.
type sessionCodes struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// byHash has the codes by their SHA-256, so that the time of a lookup tells nothing about a code.
	byHash map[[sha256.Size]byte]sessionCode
}

type sessionCode struct {
	user, token string
	expires     time.Time
}

func newSessionCodes(clock clock.PassiveClock) *sessionCodes {
	return &sessionCodes{clock: clock, byHash: map[[sha256.Size]byte]sessionCode{}}
}

// create returns a code for the token of a user, and when the code expires. It replaces the oldest code of a user who has maxCodesPerUser. It
// refuses if maxCodes are waiting.
func (s *sessionCodes) create(user, token string) (code string, expires time.Time, err error) {
	random := make([]byte, codeBytes)
	_, _ = rand.Read(random) // It never returns an error.
	code = base64.RawURLEncoding.EncodeToString(random)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteExpired()
	s.deleteOldest(user)
	if len(s.byHash) >= maxCodes {
		return "", time.Time{}, unavailable("too many codes wait to be used; retry later")
	}
	expires = s.clock.Now().Add(codeTTL)
	s.byHash[sha256.Sum256([]byte(code))] = sessionCode{user: user, token: token, expires: expires}
	return code, expires, nil
}

// redeem returns the token of a code and deletes the code.
func (s *sessionCodes) redeem(code string) (token string, err error) {
	hash := sha256.Sum256([]byte(code))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteExpired()
	found, known := s.byHash[hash]
	if !known {
		return "", newProblem(restv1.ReasonUnauthorized, "the code was used before, or is older than %d seconds: run kubectl scanner ui again, or sign in with a token",
			int(codeTTL.Seconds()))
	}
	delete(s.byHash, hash)
	return found.token, nil
}

func (s *sessionCodes) deleteExpired() {
	now := s.clock.Now()
	for hash, code := range s.byHash {
		if !now.Before(code.expires) {
			delete(s.byHash, hash)
		}
	}
}

// deleteOldest makes room for another code of a user.
func (s *sessionCodes) deleteOldest(user string) {
	var oldest [sha256.Size]byte
	n := 0
	for hash, code := range s.byHash {
		if code.user != user {
			continue
		}
		if n++; n == 1 || code.expires.Before(s.byHash[oldest].expires) {
			oldest = hash
		}
	}
	if n >= maxCodesPerUser {
		delete(s.byHash, oldest)
	}
}

// CreateSessionCode implements restv1.StrictServerInterface.
func (a operations) CreateSessionCode(ctx context.Context, _ restv1.CreateSessionCodeRequestObject) (restv1.CreateSessionCodeResponseObject, error) {
	c := callerOf(ctx)
	if c.cookie {
		return nil, newProblem(restv1.ReasonForbidden, "a code is for the token of a header (Authorization: Bearer <token>); the browser of this cookie is signed in already")
	}
	code, expires, err := a.codes.create(c.user.Username, c.token)
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
