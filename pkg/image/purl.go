package image

import (
	"net/url"
	"strings"
)

// PURL names an image as a package (https://github.com/package-url/purl-spec/blob/main/types/oci-definition.json): by its
// digest, with where it comes from and the architecture that it is for.
func PURL(repository string, key Key) string {
	name := repository[strings.LastIndex(repository, "/")+1:]
	purl := "pkg:oci/" + escapePURL(strings.ToLower(name)) + "@" + escapePURL(key.Digest) + "?"
	if key.Platform.Architecture != "" {
		purl += "arch=" + escapePURL(key.Platform.Architecture) + "&"
	}
	return purl + "repository_url=" + escapePURL(repository)
}

// escapePURL encodes a part of a package URL: all but letters, digits and the marks that need no encoding.
func escapePURL(part string) string {
	return strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
}
