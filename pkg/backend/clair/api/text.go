package api

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxMessageBytes bounds the message of an error.
const maxMessageBytes = 512

var (
	addresses   = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>\\]+`)
	userInfo    = regexp.MustCompile(`[^\s"'<>\\/:@]+:[^\s"'<>\\/@]+@`)
	credentials = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+|%20|\+)[A-Za-z0-9._~+/=-]+`)
	tokens      = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)+`)
	quoted      = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)
	statusCode  = regexp.MustCompile(`unexpected status code: (\d{3})`)
	// quotedResponse matches Clair's description of an HTTP answer, to the end of the line: the status line and, quoted, the first bytes of the
	// body (claircore, internal/httputil/responsechecker.go).
	quotedResponse = regexp.MustCompile(`(unexpected status code: \d{3})[^\n]*`)
)

// sanitize returns a text by Clair or the network as one bounded line without credentials. It removes the given secrets, text that looks like
// a token, and everything in a URL except scheme, host and path. Of other hosts' answers to Clair it keeps only the status code: images
// determine which hosts Clair contacts, and the reader of a message may have no access to these.
func sanitize(text string, secrets []string) string {
	text = quotedResponse.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "$1")
	// This comes first: without the characters that it removes, a part of the text could look like a credential.
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[hidden]")
	}
	text = addresses.ReplaceAllStringFunc(text, stripURL)
	text = userInfo.ReplaceAllString(text, "[hidden]@")
	text = credentials.ReplaceAllString(text, "$1 [hidden]")
	text = tokens.ReplaceAllString(text, "[hidden]")
	if len(text) > maxMessageBytes {
		text = text[:maxMessageBytes] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// stripURL removes user, query and fragment from a URL.
func stripURL(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "[address]"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// layerCause classifies Clair's text about a failed index (claircore, indexer/controller and libindex/fetcher.go). It returns "" if the
// text is not about a layer. Quoted parts may come from the registry and are ignored.
func layerCause(text string) LayerCause {
	text = quoted.ReplaceAllString(text, `""`)
	switch {
	case strings.Contains(text, "failed to scan all layer contents"):
		return LayerUnscannable
	case !strings.Contains(text, "failed to fetch layers"):
		return ""
	}
	for _, of := range []struct {
		cause LayerCause
		texts []string
	}{
		{LayerUnsupported, []string{"unknown content-type", "mismatched compression", "disallowed compression", "tarfs: ",
			"failed to parse remote path uri", "unsupported protocol scheme", "empty uri for layer", "disallowed by policy"}},
		{LayerCorrupt, []string{"validation failed"}},
	} {
		for _, part := range of.texts {
			if strings.Contains(text, part) {
				return of.cause
			}
		}
	}
	return statusCause(text)
}

// statusCause classifies the status codes of registries. With several layers, a failure that no other credentials can fix takes precedence.
func statusCause(text string) LayerCause {
	cause := LayerUnreachable
	for _, match := range statusCode.FindAllStringSubmatch(text, -1) {
		switch status, _ := strconv.Atoi(match[1]); {
		case status == 404, status == 410:
			return LayerMissing
		case status == 408, status == 429, status >= 500:
		default:
			cause = LayerRefused
		}
	}
	return cause
}
