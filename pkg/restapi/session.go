package restapi

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// PathSession is the path of the session. It is the only one with operations that need no token.
const PathSession = "/api/v1/session"

const (
	// maxSession is how long a session lasts if its token does not say when it expires.
	maxSession = 12 * time.Hour
	// maxExpiration is the end of the year 9999, in Unix seconds: no later time can be encoded (RFC 3339, section 1).
	maxExpiration = 253402300799
	// maxSignInBytes bounds the body that signs in: a token in JSON.
	maxTokenBytes  = 16 << 10
	maxSignInBytes = maxTokenBytes + 1024
	// cookieBytes is how much of a sealed token one cookie holds. Browsers limit a cookie, with its name and attributes, to 4,096 bytes (RFC 6265,
	// section 6.1).
	cookieBytes = 3800
	// maxCookies has room for a token of maxTokenBytes: sealed, as JSON and in base64.
	maxCookies = 7
)

// sessions seals tokens in cookies. The operator records only the sessions that were signed out, so each replica accepts the cookies of all others whose
// key it has.
type sessions struct {
	// keys returns the keys of 32 bytes: the first one seals, and each one opens.
	keys func() ([][]byte, error)
	// path is the path of the cookies: that of the web UI, "/" or one without a slash at its end.
	path  string
	clock clock.PassiveClock
	ended endedSessions
}

// sealedToken is the content of a session's cookies.
type sealedToken struct {
	Token string `json:"token"`
	// Ends is when the session ends, in Unix seconds.
	Ends int64 `json:"ends"`
	// Tenant is the hash of the tenant of the session's user.
	Tenant string `json:"tenant"`
}

// cookieName returns the name of a session's nth cookie. A name with __Host- keeps other hosts of the same domain from setting the cookie, and
// needs the path "/". Below a base path, such a cookie would also be sent to all other programs of the host.
func (s *sessions) cookieName(n int) string {
	name := "__Host-scanner-operator"
	if s.path != "/" {
		name = "__Secure-scanner-operator"
	}
	if n > 0 {
		name += "-" + strconv.Itoa(n)
	}
	return name
}

// ciphers returns the ciphers with the keys: AES-256-GCM with random nonces.
func (s *sessions) ciphers() (all []cipher.AEAD, err error) {
	keys, err := s.keys()
	if err != nil {
		return nil, fmt.Errorf("keys of the sessions: %w", err)
	}
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("keys of the sessions: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		all = append(all, aead)
	}
	return all, nil
}

// seal returns the cookies of a session with this token of a user. Cookies of an earlier session that are not needed are deleted.
func (s *sessions) seal(user, token string) ([]*http.Cookie, error) {
	ciphers, err := s.ciphers()
	if err != nil {
		return nil, err
	}
	now := s.clock.Now()
	ends := expirationOf(token)
	if ends.IsZero() {
		ends = now.Add(maxSession)
	}
	content, err := json.Marshal(sealedToken{Token: token, Ends: ends.Unix(), Tenant: hashOf(kubeauth.TenantOf(user))})
	if err != nil {
		return nil, err
	}
	//nolint:gosec // The cipher makes the nonce itself, and requires an empty one.
	rest := base64.RawURLEncoding.EncodeToString(ciphers[0].Seal(nil, nil, content, []byte(s.path)))
	cookies := s.deleted()
	for _, cookie := range cookies {
		if rest == "" {
			break
		}
		n := min(len(rest), cookieBytes)
		cookie.Value, cookie.MaxAge, rest = rest[:n], max(1, int(ends.Sub(now).Seconds())), rest[n:]
	}
	if rest != "" {
		return nil, fmt.Errorf("a sealed token does not fit in %d cookies", maxCookies)
	}
	return cookies, nil
}

// deleted returns cookies that delete all cookies of a session.
func (s *sessions) deleted() []*http.Cookie {
	cookies := make([]*http.Cookie, maxCookies)
	for n := range cookies {
		cookies[n] = &http.Cookie{
			Name: s.cookieName(n), Path: s.path, MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		}
	}
	return cookies
}

// sealedIn returns the content of a request's cookies of a session, and "" without any.
func (s *sessions) sealedIn(r *http.Request) string {
	var sealed strings.Builder
	for n := range maxCookies {
		cookie, err := r.Cookie(s.cookieName(n))
		if err != nil {
			break // errors.Is(err, http.ErrNoCookie)
		}
		sealed.WriteString(cookie.Value)
	}
	return sealed.String()
}

// token returns the token in the cookies of a request. A cookie that cannot be opened, or whose session has ended, counts as missing. So
// do the cookies of a request that a page of another origin caused.
func (s *sessions) token(r *http.Request) (token string, found bool, err error) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return "", false, nil
	}
	opened, found, err := s.opened(r.Context(), s.sealedIn(r))
	return opened.Token, found, err
}

// opened returns the session in the content of its cookies.
func (s *sessions) opened(ctx context.Context, sealed string) (opened sealedToken, found bool, err error) {
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(text) == 0 {
		return sealedToken{}, false, nil //nolint:nilerr // Whoever wrote this cookie, it is no session.
	}
	ciphers, err := s.ciphers()
	if err != nil {
		return sealedToken{}, false, err
	}
	opened, err = s.open(ciphers, text)
	if err != nil || !s.clock.Now().Before(time.Unix(opened.Ends, 0)) {
		return sealedToken{}, false, nil //nolint:nilerr // Whoever wrote this cookie, it is no session.
	}
	if ended, err := s.ended.has(ctx, text); err != nil || ended {
		return sealedToken{}, false, err
	}
	return opened, true, nil
}

// end ends the session in the content of its cookies. Without one, it does nothing.
func (s *sessions) end(ctx context.Context, sealed string) error {
	opened, found, err := s.opened(ctx, sealed)
	if err != nil || !found {
		return err
	}
	text, _ := base64.RawURLEncoding.DecodeString(sealed) // it was decoded to be opened
	return s.ended.add(ctx, text, opened.Tenant, time.Unix(opened.Ends, 0))
}

// open returns the content of what the cookies of a session encode.
func (s *sessions) open(ciphers []cipher.AEAD, text []byte) (opened sealedToken, err error) {
	var content []byte
	for _, aead := range ciphers {
		if content, err = aead.Open(nil, nil, text, []byte(s.path)); err == nil {
			break
		}
	}
	if err != nil {
		return sealedToken{}, err
	}
	err = json.Unmarshal(content, &opened)
	return opened, err
}

// expirationOf returns when a token expires (the claim exp, RFC 7519), or zero if it is not a JWT or does not say. The token's signature is not
// verified: the API server reviews the token whenever it is used. A time that JSON cannot have counts as none.
func expirationOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiration int64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Expiration <= 0 || claims.Expiration > maxExpiration {
		return time.Time{}
	}
	return time.Unix(claims.Expiration, 0).UTC()
}

// GetSession implements restv1.StrictServerInterface.
func (a operations) GetSession(ctx context.Context, _ restv1.GetSessionRequestObject) (restv1.GetSessionResponseObject, error) {
	session, err := a.session(ctx)
	return restv1.GetSession200JSONResponse(session), err
}

// session returns the session of the caller.
func (a operations) session(ctx context.Context) (restv1.Session, error) {
	c := callerOf(ctx)
	session := restv1.Session{User: c.user.Username, Cookie: c.cookie, Namespaces: []string{}, Version: version.Version, Cluster: a.ClusterName, URL: a.WebUI, ExpirationTime: expirationOf(c.token)}
	// What is loaded after this response has all changes before this position.
	session.EventID = a.Events.Position()
	clusterWide, err := a.clusterCoverage(ctx)
	if err != nil {
		return restv1.Session{}, err
	}
	scanned := clusterWide.namespaces()
	all, seen, err := a.listWithVisibility(ctx, resourceImageScans, "", scanned...)
	var refused *problem
	switch {
	case errors.As(err, &refused) && (refused.Reason == restv1.ReasonForbidden || refused.Reason == restv1.ReasonInvalidParameter):
		return session, nil // a user without permissions, or one that must name its namespace
	case err != nil:
		return restv1.Session{}, err
	case seen.all:
		seen.namespaces = sortedNamespaces(all, scanned)
	}
	session.AllNamespaces = seen.all
	session.Namespaces = append(session.Namespaces, seen.namespaces[:min(len(seen.namespaces), maxNamespaces)]...)
	return session, nil
}

// CreateSession implements restv1.StrictServerInterface.
func (a operations) CreateSession(ctx context.Context, r restv1.CreateSessionRequestObject) (restv1.CreateSessionResponseObject, error) {
	token, err := a.signInToken(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	c := callerOf(ctx)
	c.token, c.cookie = token, true
	if c.user, err = a.identify(ctx, c); err != nil {
		return nil, err
	}
	session, err := a.session(ctx)
	if err != nil {
		return nil, err
	}
	cookies, err := a.sessions.seal(c.user.Username, token)
	return signedIn{cookies, restv1.CreateSession200JSONResponse(session)}, err
}

// signInToken returns the token that a body signs in with: the one in it, or the one of its code, which cannot be used again.
func (a operations) signInToken(ctx context.Context, body restv1.SignIn) (string, error) {
	token := strings.TrimSpace(body.Token)
	switch {
	case body.Code != "" && token != "":
		return "", invalidParameter("code", "send either a token or a code")
	case body.Code != "":
		return a.codes.redeem(ctx, callerOf(ctx).address, body.Code)
	case token == "" || len(token) > maxTokenBytes:
		return "", invalidParameter("token", "must be a token of at most %d bytes (kubectl create token gives one)", maxTokenBytes)
	}
	return token, nil
}

// signedIn is a response with cookies. The generated types have room for one only.
type signedIn struct {
	cookies []*http.Cookie
	restv1.CreateSession200JSONResponse
}

// VisitCreateSessionResponse implements restv1.CreateSessionResponseObject.
func (s signedIn) VisitCreateSessionResponse(w http.ResponseWriter) error {
	setCookies(w, s.cookies)
	return s.CreateSession200JSONResponse.VisitCreateSessionResponse(w)
}

// DeleteSession implements restv1.StrictServerInterface.
func (a operations) DeleteSession(ctx context.Context, _ restv1.DeleteSessionRequestObject) (restv1.DeleteSessionResponseObject, error) {
	// Without the keys, no copy of the cookies is accepted either. The browser forgets them in any case.
	if err := a.sessions.end(ctx, callerOf(ctx).sealed); err != nil {
		a.Log.Error(err, "Ending a session")
	}
	return signedOut{cookies: a.sessions.deleted()}, nil
}

type signedOut struct {
	cookies []*http.Cookie
	restv1.DeleteSession204Response
}

// VisitDeleteSessionResponse implements restv1.DeleteSessionResponseObject.
func (s signedOut) VisitDeleteSessionResponse(w http.ResponseWriter) error {
	setCookies(w, s.cookies)
	return s.DeleteSession204Response.VisitDeleteSessionResponse(w)
}

func setCookies(w http.ResponseWriter, cookies []*http.Cookie) {
	for _, cookie := range cookies {
		http.SetCookie(w, cookie)
	}
}
