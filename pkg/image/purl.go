package image

import (
	"net/url"
	"strings"
)

// PURL returns the package URL of an image (https://github.com/package-url/purl-spec/blob/main/types/oci-definition.json): its
// digest, repository and architecture.
func PURL(repository string, key Key) string {
	name := repository[strings.LastIndex(repository, "/")+1:]
	purl := "pkg:oci/" + escapePURL(strings.ToLower(name)) + "@" + escapePURL(key.Digest) + "?"
	if key.Platform.Architecture != "" {
		purl += "arch=" + escapePURL(key.Platform.Architecture) + "&"
	}
	return purl + "repository_url=" + escapePURL(repository)
}

// escapePURL percent-encodes all characters of a package URL's part except letters, digits and the marks that need no encoding.
func escapePURL(part string) string {
	return strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
}
