package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// defaultLimit is the number of items on a page if the caller sets no limit. The OpenAPI document defines it.
const defaultLimit = 100

func limitOf(limit *restv1.Limit) int { return ptr.Deref(limit, defaultLimit) }

// continueToken is the content of a continue token. The token is not signed: whatever it contains, the caller gets only what it may see.
type continueToken struct {
	// QueryHash identifies the request. Positions of another request are not valid for it.
	QueryHash string `json:"question"`
	Position  any    `json:"place"`
}

// queryHashOf identifies what is requested, whichever page of it: the path, and the parameters except continue and limit.
func queryHashOf(r *http.Request) string {
	query := r.URL.Query()
	query.Del("continue")
	query.Del("limit")
	sum := sha256.Sum256([]byte(r.URL.Path + "?" + query.Encode()))
	return hex.EncodeToString(sum[:8])
}

// encodeContinue returns the continue token of the page of the request that begins at a position.
func encodeContinue(ctx context.Context, position any) (restv1.Continue, error) {
	text, err := json.Marshal(continueToken{QueryHash: callerOf(ctx).queryHash, Position: position})
	return base64.RawURLEncoding.EncodeToString(text), err
}

// decodeContinue decodes the request's continue token into position. Without a token, position stays unchanged. A token that is invalid, or of
// another request, is refused.
func decodeContinue(ctx context.Context, token *restv1.Continue, position any) error {
	if token == nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(*token)
	if err != nil {
		return invalidParameter("continue", "it is not the value of an earlier response: begin again without it")
	}
	mark := continueToken{Position: position}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&mark); err != nil || decoder.More() {
		return invalidParameter("continue", "it is not the value of an earlier response: begin again without it")
	}
	if mark.QueryHash != callerOf(ctx).queryHash {
		return invalidParameter("continue", "it belongs to a request with other parameters: send them as they were, or begin again without it")
	}
	return nil
}

// resultsReplaced returns the refusal of a page of results that were replaced.
func resultsReplaced() *problem {
	return newProblem(restv1.ReasonExpired, "the report was replaced between two pages: begin again without continue")
}
