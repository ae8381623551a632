package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // for missing
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed missing.html
var missing []byte

// Handler serves the web UI below a base path, and the REST API both there and at the root. basePath is "", or begins with a slash and does not
// end with one. A path of neither the UI nor the API is not found.
func Handler(api http.Handler, basePath string) (http.Handler, error) {
	html, brotli, err := built()
	if err != nil {
		return nil, fmt.Errorf("web UI: %w", err)
	}
	if html == nil {
		html = missing
	}
	return newHandler(api, basePath, html, brotli)
}

// buildAttribute is the attribute of the document with what identifies the build.
var buildAttribute = regexp.MustCompile(` data-build="([0-9a-f]+)"`)

// Build returns what identifies the document that Handler serves, as the document itself says. It is empty if the program was built without the UI.
func Build() (string, error) {
	html, _, err := built()
	if err != nil || html == nil {
		return "", err
	}
	found := buildAttribute.FindSubmatch(html)
	if found == nil {
		return "", errors.New("web UI: the document does not say which build it is")
	}
	return string(found[1]), nil
}

func newHandler(api http.Handler, basePath string, html, brotli []byte) (http.Handler, error) {
	served, err := newDocument(html, brotli, basePath)
	if err != nil {
		return nil, fmt.Errorf("web UI: %w", err)
	}
	var paths []string
	if err := json.Unmarshal(routes, &paths); err != nil {
		return nil, fmt.Errorf("web UI: routes.json: %w", err)
	}
	mux := http.NewServeMux()
	for _, path := range paths {
		if path == "/" {
			path = "/{$}"
		}
		mux.Handle(basePath+path, served)
	}
	for _, path := range []string{"/api/", "/openapi.yaml"} {
		mux.Handle(path, api)
		if basePath != "" {
			mux.Handle(basePath+path, http.StripPrefix(basePath, api))
		}
	}
	if basePath != "" {
		redirect := http.RedirectHandler(basePath+"/", http.StatusFound)
		mux.Handle("/{$}", redirect)
		mux.Handle(basePath, redirect)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is nothing at this path", http.StatusNotFound)
	})
	return mux, nil
}

// document is the UI's only document. It is the same for everybody and at all paths of the UI.
type document struct {
	// encodings holds the document by its content coding, "" for identity.
	encodings map[string][]byte
	// tag is the entity tag of each encoding, without its end.
	tag string
	csp string
}

// baseAttribute is the attribute of the document that tells the script the base path. A <base> element would weaken the policy.
const baseAttribute = ` data-base=""`

func newDocument(html, brotli []byte, basePath string) (*document, error) {
	if basePath != "" {
		// basePath has no character that HTML would need escaped (config.UI).
		html, brotli = bytes.Replace(html, []byte(baseAttribute), fmt.Appendf(nil, ` data-base="%s"`, basePath), 1), nil
	}
	hash := sha256.Sum256(html)
	d := &document{encodings: map[string][]byte{"": html}, tag: hex.EncodeToString(hash[:12]), csp: contentSecurityPolicy(html)}
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(html); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	d.encodings["gzip"] = compressed.Bytes()
	if brotli != nil {
		d.encodings["br"] = brotli
	}
	return d, nil
}

var (
	scripts = regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>`)
	styles  = regexp.MustCompile(`(?s)<style[^>]*>(.*?)</style>`)
)

// contentSecurityPolicy returns a policy that runs only the scripts and applies only the styles that the document was built with.
func contentSecurityPolicy(html []byte) string {
	return "default-src 'none'; script-src " + hashesOf(scripts, html) + "; style-src " + hashesOf(styles, html) +
		"; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'" +
		"; require-trusted-types-for 'script'; trusted-types 'none'"
}

// hashesOf returns the sources of a directive for the contents of elements, or 'none'.
func hashesOf(element *regexp.Regexp, html []byte) string {
	var sources []string
	for _, found := range element.FindAllSubmatch(html, -1) {
		hash := sha256.Sum256(found[1])
		sources = append(sources, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
	}
	if sources == nil {
		return "'none'"
	}
	return strings.Join(sources, " ")
}

// ServeHTTP implements http.Handler.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		return
	}
	coding := d.choose(r.Header.Values("Accept-Encoding"))
	if coding != "" {
		header.Set("Content-Encoding", coding)
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", d.csp)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Robots-Tag", "noindex, nofollow")
	header.Set("Cache-Control", "no-cache")
	header.Set("Vary", "Accept-Encoding")
	header.Set("ETag", `"`+d.tag+strings.TrimSuffix("-"+coding, "-")+`"`)
	// ServeContent answers If-None-Match. A zero time sets no Last-Modified.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.encodings[coding]))
}

// choose returns the smallest encoding that a request accepts (RFC 9110, section 12.5.3).
func (d *document) choose(accept []string) (coding string) {
	quality := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(item, ";")
		q := 1.0
		if value, found := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q="); found {
			q, _ = strconv.ParseFloat(value, 64) // 0, not accepted, if it cannot be parsed
		}
		quality[strings.ToLower(strings.TrimSpace(name))] = q
	}
	for _, name := range slices.Sorted(maps.Keys(d.encodings)) {
		q, named := quality[name]
		if !named {
			q = quality["*"]
		}
		if name != "" && q > 0 && (coding == "" || len(d.encodings[name]) < len(d.encodings[coding])) {
			coding = name
		}
	}
	return coding
}
