package clair

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxMessageBytes bounds what is told of an error.
const maxMessageBytes = 512

var (
	addresses   = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>\\]+`)
	userInfo    = regexp.MustCompile(`[^\s"'<>\\/:@]+:[^\s"'<>\\/@]+@`)
	credentials = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+|%20|\+)[A-Za-z0-9._~+/=-]+`)
	tokens      = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)+`)
	quoted      = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)
	statusCode  = regexp.MustCompile(`unexpected status code: (\d{3})`)
	// answered is what Clair tells of an HTTP answer, to the end of the line: its status line and, quoted, the first bytes
	// of its body (claircore, internal/httputil/responsechecker.go).
	answered = regexp.MustCompile(`(unexpected status code: \d{3})[^\n]*`)
)

// clean makes one bounded line of a text that Clair or the network wrote, without credentials: those that are known to
// have been sent, what looks like a token, and what may stand in an address beside host and path. Of what other hosts
// answered to Clair it leaves the status code: images say which hosts are asked, and who reads messages need not be one
// whom those would answer.
func clean(text string, secrets []string) string {
	text = answered.ReplaceAllString(text, "$1")
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[hidden]")
	}
	text = addresses.ReplaceAllStringFunc(text, bare)
	text = userInfo.ReplaceAllString(text, "[hidden]@")
	text = credentials.ReplaceAllString(text, "$1 [hidden]")
	text = tokens.ReplaceAllString(text, "[hidden]")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxMessageBytes {
		text = text[:maxMessageBytes] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// bare is an address without user, query and fragment.
func bare(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "[address]"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// layerCause reads Clair's text about a failed index (claircore, indexer/controller and libindex/fetcher.go); empty if
// it is not about a layer. What is quoted there may come from the registry, and decides nothing.
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

// statusCause looks for what registries answered. With several layers the one counts that no other credentials mend.
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
