package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// defaultLimit of items on a page, as the document says.
const defaultLimit = 100

func limitOf(limit *restv1.Limit) int { return ptr.Deref(limit, defaultLimit) }

// bookmark is what "continue" says. It is not signed: whatever it says, the caller gets only what it may see.
type bookmark struct {
	// Question is what was asked; another question has other places.
	Question string `json:"question"`
	Place    any    `json:"place"`
}

// questionOf identifies what a request asks for, whichever page of it.
func questionOf(r *http.Request) string {
	query := r.URL.Query()
	query.Del("continue")
	query.Del("limit")
	sum := sha256.Sum256([]byte(r.URL.Path + "?" + query.Encode()))
	return hex.EncodeToString(sum[:8])
}

// continueAt writes where the next page begins.
func continueAt(question string, place any) (restv1.Continue, error) {
	text, err := json.Marshal(bookmark{Question: question, Place: place})
	return base64.RawURLEncoding.EncodeToString(text), err
}

// readPlace reads where a page begins. Without a token, place stays as it is.
func readPlace(question string, token *restv1.Continue, place any) error {
	if token == nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(*token)
	if err != nil {
		return invalid("continue", "it is not what an answer said: begin again without it")
	}
	mark := bookmark{Place: place}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&mark); err != nil || decoder.More() {
		return invalid("continue", "it is not what an answer said: begin again without it")
	}
	if mark.Question != question {
		return invalid("continue", "it belongs to a request with other parameters: send them as they were, or begin again without it")
	}
	return nil
}

// expired says that what is paged through is another thing now.
func expired() *problem {
	return refuse(restv1.ReasonExpired, "the report was replaced while it was paged through: begin again without continue")
}
