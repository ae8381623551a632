package restapi

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// problem is an error with its response. Its text is sent to the caller.
type problem struct {
	restv1.Problem
	// retryAfter is the value of the header Retry-After; zero for none.
	retryAfter time.Duration
	// allow are the values of the header Allow.
	allow []string
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

var statusOf = map[restv1.Reason]int{
	restv1.ReasonInvalidParameter: http.StatusBadRequest,
	restv1.ReasonUnauthorized:     http.StatusUnauthorized,
	restv1.ReasonForbidden:        http.StatusForbidden,
	restv1.ReasonNotFound:         http.StatusNotFound,
	restv1.ReasonMethodNotAllowed: http.StatusMethodNotAllowed,
	restv1.ReasonNotAcceptable:    http.StatusNotAcceptable,
	restv1.ReasonNotScanned:       http.StatusConflict,
	restv1.ReasonFormatNotStored:  http.StatusConflict,
	restv1.ReasonSuperseded:       http.StatusConflict,
	restv1.ReasonExpired:          http.StatusGone,

	restv1.ReasonPreconditionFailed:   http.StatusPreconditionFailed,
	restv1.ReasonBodyTooLarge:         http.StatusRequestEntityTooLarge,
	restv1.ReasonUnsupportedMediaType: http.StatusUnsupportedMediaType,
	restv1.ReasonTooLarge:             http.StatusUnprocessableEntity,
	restv1.ReasonInvalidReport:        http.StatusUnprocessableEntity,
	restv1.ReasonUnsupportedReport:    http.StatusUnprocessableEntity,
	restv1.ReasonLimitExceeded:        http.StatusUnprocessableEntity,
	restv1.ReasonInvalidManifest:      http.StatusUnprocessableEntity,
	restv1.ReasonInvalidSBOM:          http.StatusUnprocessableEntity,
	restv1.ReasonPlatformRequired:     http.StatusUnprocessableEntity,
	restv1.ReasonTooManyRequests:      http.StatusTooManyRequests,
	restv1.ReasonUnavailable:          http.StatusServiceUnavailable,
	restv1.ReasonStorageFull:          http.StatusInsufficientStorage,
}

func newProblem(reason restv1.Reason, format string, args ...any) *problem {
	status := statusOf[reason]
	return &problem{Problem: restv1.Problem{
		Title: http.StatusText(status), Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...),
	}}
}

// invalidParameter returns the refusal of a parameter.
func invalidParameter(field, format string, args ...any) *problem {
	p := newProblem(restv1.ReasonInvalidParameter, "%s: %s", field, fmt.Sprintf(format, args...))
	p.Field = field
	return p
}

// methodNotAllowed returns the refusal of a method.
func methodNotAllowed(allowed []string) *problem {
	p := newProblem(restv1.ReasonMethodNotAllowed, "this method is not allowed here: there are %s", strings.Join(allowed, ", "))
	p.allow = allowed
	return p
}

// unavailable returns the refusal that asks the caller to retry later.
func unavailable(detail string) *problem {
	p := newProblem(restv1.ReasonUnavailable, "%s", detail)
	p.retryAfter = 5 * time.Second
	return p
}

// write sends the problem as the response.
func (p *problem) write(w http.ResponseWriter) {
	header := w.Header()
	for _, name := range []string{"ETag", "Content-Encoding", "Content-Length"} {
		header.Del(name) // set for the response that is not sent now
	}
	header.Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		header.Set("Allow", strings.Join(p.allow, ", "))
	}
	if p.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	w.WriteHeader(p.Status)
	// If the caller is gone, there is nobody to report the error to.
	_ = json.NewEncoder(w).Encode(p.Problem)
}
