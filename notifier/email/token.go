package email

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

const (
	// MaxAccessTokenBytes bounds an access token of OAuth 2.0. Those of Microsoft have some 2 KB, and a line of AUTH has room for 12,288 bytes in
	// base64 (https://www.rfc-editor.org/rfc/rfc4954#section-4).
	MaxAccessTokenBytes = 8 << 10
	// maxTokens bounds the tokens that are cached.
	maxTokens = 1000
	// tokenMargin is how long before its end a token is not used any more, and maxTokenAge how long a token is used at most.
	tokenMargin = time.Minute
	maxTokenAge = 24 * time.Hour
)

// tokens gets access tokens from token servers, with the client's credentials (https://www.rfc-editor.org/rfc/rfc6749#section-4.4), and caches them. A
// token is used only for an address with the same credentials. It is safe for concurrent use.
type tokens struct {
	client *receiver.Client
	cached *cache.LRUExpireCache
}

func newTokens(network receiver.Network) tokens {
	return tokens{receiver.NewClient("the token server", network), cache.NewLRUExpireCache(maxTokens)}
}

// get returns the access token for an address, or an outcome if there is none. No mail has been sent then.
func (t tokens) get(ctx context.Context, to receiver.Address) (string, *announce.Outcome) {
	if token, found := t.cached.Get(to.Key()); found {
		return token.(string), nil
	}
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	form := url.Values{"grant_type": {"client_credentials"}}
	if to.Client.Scope != "" {
		form.Set("scope", to.Client.Scope)
	}
	header := http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}, "User-Agent": {"scanner-operator"},
		"Authorization": {basic(to.Client.ID, to.Client.Secret)},
	}
	server := receiver.Address{Target: to.Client.Server, Certificates: to.Certificates}
	answer, none := t.client.Post(ctx, server, header, []byte(form.Encode()))
	if none != nil {
		if none.Result == announce.UnknownOutcome { // of the request for a token, which may be repeated
			_, why, _ := strings.Cut(none.Message, "answer was lost: ")
			none = &announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNetwork, Message: "the token server's answer was lost: " + why}
		}
		return "", none
	}
	var is struct {
		Token     string      `json:"access_token"`
		ExpiresIn json.Number `json:"expires_in"` // a text for some servers, such as the v1.0 endpoint of Microsoft
		Error     string      `json:"error"`
	}
	err := json.Unmarshal(answer.Body, &is)
	switch {
	case !answer.IsOK():
		return "", t.refused(answer, is.Error)
	case err != nil || !isToken(is.Token):
		return "", &announce.Outcome{
			Result: announce.Temporary, Reason: announce.ReasonReceiverFailed,
			Message: fmt.Sprintf("the token server's answer has no access token of at most %d bytes: check the key tokenURL of the Secret, and whether there "+
				"is a proxy in between", MaxAccessTokenBytes),
		}
	}
	expiresIn, _ := is.ExpiresIn.Float64() // an error is no number, or infinite
	if age := min(expiresIn, maxTokenAge.Seconds()) - tokenMargin.Seconds(); age > 0 {
		t.cached.Add(to.Key(), is.Token, time.Duration(age*float64(time.Second)))
	}
	return is.Token, nil
}

// forget has the next mail to an address get another token.
func (t tokens) forget(to receiver.Address) { t.cached.Remove(to.Key()) }

// refused returns the outcome for an answer that is not of success, with its error code (https://www.rfc-editor.org/rfc/rfc6749#section-5.2). Its
// description is not quoted: it names the client and the tenant.
func (t tokens) refused(answer receiver.Answer, code string) *announce.Outcome {
	advice := ""
	switch {
	case code == "invalid_client" || code == "unauthorized_client":
		advice = "check the keys clientID and clientSecret of the Secret, and whether the secret has expired"
	case code == "invalid_scope":
		advice = "check the key scope of the Secret"
	case answer.Status >= 400 && answer.Status < 500:
		advice = "check the keys tokenURL, clientID, clientSecret and scope of the Secret"
	}
	if !receiver.IsWord(code) {
		code = ""
	}
	outcome := t.client.Outcome(answer, code, advice)
	return &outcome
}

// basic returns the header for a client's credentials, which are encoded as in a form (https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1).
func basic(id, secret string) string {
	request := http.Request{Header: http.Header{}}
	request.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	return request.Header.Get("Authorization")
}

// isToken reports whether a text can be an access token, which ends at a control character in AUTH.
func isToken(text string) bool {
	return text != "" && len(text) <= MaxAccessTokenBytes && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
