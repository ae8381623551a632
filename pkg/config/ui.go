package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// UI configures the web UI, which the REST API's server also serves.
type UI struct {
	// Enabled serves the web UI. Default true.
	Enabled bool `json:"enabled"`
	// URL is where people reach the web UI, such as https://scanner.example.com. Messages link to it if it begins with https://. Empty: messages have no links. It
	// ends with basePath.
	URL string `json:"url,omitempty"`
	// BasePath is the path of the web UI, if it shares its host with other programs: /scanner. It begins with a slash and does not end with one.
	// The proxy in front must pass it on. Default empty: the root.
	BasePath string `json:"basePath,omitempty"`
	// TLS configures a certificate for people's browsers. Without it, the server has only a certificate of the operator's own authority.
	TLS UITLS `json:"tls"`
}

// UITLS configures the certificate that browsers get.
type UITLS struct {
	// CertFile and KeyFile are the absolute paths of files with the PEM certificate chain and its private key. They come from a Secret that
	// is mounted, and are read again when they change. Clients that ask for a name of the Service or for localhost still get the operator's own certificate.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// maxUIURL bounds ui.url, so that addresses of pages are within the bound of links in messages.
const maxUIURL = 150

// basePathPattern has no character that HTML, a cookie or a pattern of http.ServeMux treats specially.
var basePathPattern = regexp.MustCompile(`^(/[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)*$`)

// Links returns the address that messages link to; empty for none.
func (u UI) Links() string {
	if !u.Enabled {
		return ""
	}
	return u.URL
}

func (u UI) validate(errs *fieldErrors) {
	errs.check(len(u.BasePath) <= 128 && basePathPattern.MatchString(u.BasePath), "ui.basePath",
		"must be empty or begin with a slash, not end with one, and have only letters, digits, dots, dashes and underscores")
	errs.check(!strings.HasPrefix(u.BasePath+"/", "/api/"), "ui.basePath", "must not be /api or below it, where the REST API is")
	if u.URL != "" {
		parsed, err := url.Parse(u.URL)
		errs.checkURL("ui.url", u.URL)
		errs.check(len(u.URL) <= maxUIURL, "ui.url", "must be at most 150 bytes, so that messages can link to its pages")
		errs.check(err != nil || parsed.RawQuery == "" && parsed.Fragment == "" && strings.TrimSuffix(parsed.Path, "/") == u.BasePath, "ui.url",
			"must end with ui.basePath, and have no query and no fragment")
	}
	errs.check((u.TLS.CertFile == "") == (u.TLS.KeyFile == ""), "ui.tls", "needs both certFile and keyFile")
	errs.check(u.TLS.CertFile == "" || filepath.IsAbs(u.TLS.CertFile), "ui.tls.certFile", "must be the absolute path of a file")
	errs.check(u.TLS.KeyFile == "" || filepath.IsAbs(u.TLS.KeyFile), "ui.tls.keyFile", "must be the absolute path of a file")
}
