// Package failure turns errors into failures that users can read: a reason of workerapi and one line of text without secrets.
//
// It promises that no message carries a URL's credentials or query (signed URLs are secrets), a bearer
// token, a line break, or more than MaxMessage bytes, whatever the error contains.
package failure

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// MaxMessage is the maximum length of a message in bytes. Encoded as JSON, a failure stays below
// the 4096 bytes that the kubelet reads from a termination file
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
const MaxMessage = 1024

// Error is an error with a reason from workerapi.
type Error struct {
	// Reason is one of workerapi's Reason constants.
	Reason string
	// RetryAfter is the wait that a registry asked for; 0 if it did not ask for one.
	RetryAfter time.Duration
	// Registry is the host of the throttling registry, as in image references; empty with all other reasons.
	Registry string
	// Err is the cause.
	Err error
}

// New gives err a reason.
func New(reason string, err error) *Error { return &Error{Reason: reason, Err: err} }

// Error returns the text of the cause. It may hold secrets, which Line removes.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Describe returns the failure that users read for err. fallback is the reason of an error that has none.
func Describe(err error, fallback string) workerapi.Failure {
	f := workerapi.Failure{Reason: fallback, Message: Line(err.Error())}
	var known *Error
	if errors.As(err, &known) {
		f.Reason = known.Reason
		f.Registry = known.Registry
		f.RetryAfterSeconds = int(known.RetryAfter.Round(time.Second) / time.Second)
	}
	return f
}

// Write writes f as one line of JSON to the termination file at path. The kubelet copies that file into the pod's status.
func Write(path string, f workerapi.Failure) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	// Escaping <, > and & would make a message up to six times as long, which is more than the kubelet reads.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(f); err != nil {
		return err
	}
	return os.WriteFile(path, line.Bytes(), 0o644)
}

// Patterns of possible secrets in the text of an error. userInfo is greedy up to the last @, since passwords may contain one.
var (
	userInfo = regexp.MustCompile(`://[^/\s"']*@`)
	urlQuery = regexp.MustCompile(`(://[^\s"'?]+)\?[^\s"']*`)
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
)

// Line returns s as one line of at most MaxMessage bytes without secrets.
func Line(s string) string {
	s = strings.ToValidUTF8(s, "?")
	// With control characters, an image name could forge log lines.
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	s = userInfo.ReplaceAllString(s, "://")
	s = urlQuery.ReplaceAllString(s, "$1?…")
	s = bearer.ReplaceAllString(s, "$1 …")
	return text.Truncate(s, MaxMessage)
}
