package cyclonedx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// SpecVersions are the versions of CycloneDX that Decode reads. What it reads is the same in all of them. Grype writes version 1.7.
var SpecVersions = []string{"1.4", "1.5", "1.6", "1.7"}

// maxClockSkew is how far in the future a document's time may be.
const maxClockSkew = 5 * time.Minute

// maxIgnored is how many ignored parts Document.Ignored lists.
const maxIgnored = 100

// Document is what Decode reads of a CycloneDX document.
type Document struct {
	SpecVersion string
	// SerialNumber is empty if the document has none. Version is 1 if the document has none.
	SerialNumber string
	Version      int64
	Timestamp    time.Time
	// Tool is the name and version of the program that made the document; empty if the document names none.
	Tool string
	// Findings are merged (finding.Merge).
	Findings []finding.Finding
	// Ignored lists parts that stand for no finding, in the order of the document: at most maxIgnored. IgnoredCount is the number of all.
	Ignored      []Ignored
	IgnoredCount int
}

// Ignored is a part of a document that stands for no finding.
type Ignored struct {
	// Pointer is the part's JSON pointer (RFC 6901).
	Pointer string
	Reason  string
}

// Errors that Decode wraps in a DocumentError.
var (
	// ErrInvalid means that the document is not JSON, or not as CycloneDX defines it.
	ErrInvalid = errors.New("the document is not valid")
	// ErrUnsupported means that the document is valid and Decode does not read its format or version.
	ErrUnsupported = errors.New("the document's format is not supported")
	// ErrLimit means that the document exceeds a bound.
	ErrLimit = errors.New("the document exceeds a limit")
)

// DocumentError says what is wrong with a document, and where.
type DocumentError struct {
	// Kind is ErrInvalid, ErrUnsupported or ErrLimit.
	Kind error
	// Pointer is a JSON pointer (RFC 6901); empty for the whole document.
	Pointer string
	// Detail has no text from the document that is longer than a few words.
	Detail string
}

// Error implements error.
func (e *DocumentError) Error() string {
	if e.Pointer == "" {
		return e.Detail
	}
	return e.Pointer + ": " + e.Detail
}

// Unwrap returns the kind.
func (e *DocumentError) Unwrap() error { return e.Kind }

func invalid(pointer, format string, args ...any) error {
	return &DocumentError{ErrInvalid, pointer, fmt.Sprintf(format, args...)}
}

func limitExceeded(pointer, format string, args ...any) error {
	return &DocumentError{ErrLimit, pointer, fmt.Sprintf(format, args...)}
}

// Decode reads the findings of a CycloneDX document in JSON to its end. It returns a DocumentError if the document cannot be taken as a whole,
// and the reader's own error if reading fails. now bounds the document's time. Memory is bounded by the bounds of this package and not by the
// document's size. Text from the document is not cleaned (finding.Finding.Clean).
func Decode(r io.Reader, now time.Time) (*Document, error) {
	text := &boundedReader{from: r}
	d := decoder{
		text: text, json: json.NewDecoder(text), seen: make(map[string]bool), listed: make(map[string]bool), packages: make(map[string]affectedPackage),
		document: &Document{Version: 1},
	}
	d.json.UseNumber() // a number that is not read may have any value
	if err := d.decode(); err != nil {
		return nil, err
	}
	if err := d.checkHeader(now); err != nil {
		return nil, err
	}
	d.document.Findings = finding.Merge(d.findings())
	return d.document, nil
}

// decoder is the state of Decode.
type decoder struct {
	text     *boundedReader
	json     *json.Decoder
	document *Document
	// seen are the fields of the document so far, and listed the pointers of those that are lists. A field that is null is like one that is missing.
	seen      map[string]bool
	listed    map[string]bool
	format    string
	timestamp string
	// engine is the name under which this program wrote the document; empty for documents of others.
	engine string

	components      int
	packages        map[string]affectedPackage // by reference
	vulnerabilities []vulnerability
	affected        int
	kept            int
}

// decode reads the fields of the document, in whatever order they come.
func (d *decoder) decode() error {
	opening, err := d.json.Token()
	if err != nil {
		return d.syntax("", err)
	}
	if opening != json.Delim('{') {
		return invalid("", "it is not a JSON object")
	}
	for d.json.More() {
		key, err := d.json.Token()
		if err != nil {
			return d.syntax("", err)
		}
		name, _ := key.(string) // a key is a string
		pointer := "/" + escapePointer(name)
		if d.seen[name] {
			return invalid(pointer, "it is there twice")
		}
		if len(d.seen) >= maxDepth {
			return limitExceeded(pointer, "the document has more than %d fields", maxDepth)
		}
		d.seen[name] = true
		if err := d.field(name, pointer); err != nil {
			return err
		}
	}
	if _, err := d.json.Token(); err != nil { // the closing brace
		return d.syntax("", err)
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		if err != nil {
			return d.syntax("", err)
		}
		return invalid("", "there is more after the document")
	}
	return nil
}

func (d *decoder) field(name, pointer string) error {
	switch name {
	case "bomFormat":
		return d.value(pointer, &d.format)
	case "specVersion":
		return d.value(pointer, &d.document.SpecVersion)
	case "serialNumber":
		return d.value(pointer, &d.document.SerialNumber)
	case "version":
		return d.value(pointer, &d.document.Version)
	case "metadata":
		var m metadata
		if err := d.value(pointer, &m); err != nil {
			return err
		}
		return d.addMetadata(m)
	case "components":
		return d.list(pointer, func(pointer string) error {
			var c component
			if err := d.value(pointer, &c); err != nil {
				return err
			}
			return d.addComponent(c, pointer)
		})
	case "vulnerabilities":
		return d.list(pointer, func(pointer string) error {
			var v vulnerability
			if err := d.value(pointer, &v); err != nil {
				return err
			}
			return d.addVulnerability(v, pointer)
		})
	}
	return d.skip(pointer)
}

// value decodes the next value. A value of the wrong type is an error with its pointer.
func (d *decoder) value(pointer string, into any) error {
	begin := d.json.InputOffset()
	d.text.forget(begin)
	err := d.json.Decode(into)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		if err != nil {
			return d.syntax(pointer, err)
		}
		return nil
	}
	raw := bytes.TrimLeft(d.text.after(begin), " \t\r\n")
	if raw[0] == ',' || raw[0] == ':' { // the offset of the error is counted from here, or else from the end of the token before
		return wrongType(raw[1:], pointer, wrong)
	}
	return wrongType(d.text.after(begin), pointer, wrong)
}

// wrongType returns the error for a part of a value.
func wrongType(raw []byte, pointer string, wrong *json.UnmarshalTypeError) error {
	kind, _, _ := strings.Cut(wrong.Value, " ") // of a number, the number follows
	return invalid(pointer+pointerAt(raw, wrong.Offset), "it must not be this JSON %s", kind)
}

// list calls each before every element of the next value, which must be a list. each reads the element.
func (d *decoder) list(pointer string, each func(pointer string) error) error {
	opening, err := d.json.Token()
	if err != nil {
		return d.syntax(pointer, err)
	}
	if opening == nil {
		return nil
	}
	if opening != json.Delim('[') {
		return invalid(pointer, "it is not a list")
	}
	d.listed[pointer] = true
	for n := 0; d.json.More(); n++ {
		if err := each(pointer + "/" + strconv.Itoa(n)); err != nil {
			return err
		}
	}
	if _, err := d.json.Token(); err != nil {
		return d.syntax(pointer, err)
	}
	return nil
}

// skip reads over the next value.
func (d *decoder) skip(pointer string) error {
	for depth := 0; ; {
		token, err := d.json.Token()
		if err != nil {
			return d.syntax(pointer, err)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// syntax returns the error for a value that cannot be read.
func (d *decoder) syntax(pointer string, err error) error {
	var bound *DocumentError
	var wrong *json.SyntaxError
	switch {
	case errors.As(err, &bound):
		return &DocumentError{bound.Kind, pointer, bound.Detail}
	case errors.As(err, &wrong):
		return invalid(pointer, "it is not JSON: %v at byte %d", wrong, wrong.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid(pointer, "the document ends too early")
	}
	return err
}

// unmarshal decodes a value that was read before.
func unmarshal(raw json.RawMessage, pointer string, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrongType(raw, pointer, wrong)
	}
	return err
}

// pointerAt returns the JSON pointer of the value that ends, or opens, at an offset.
func pointerAt(raw []byte, offset int64) string {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	tokens.UseNumber() // any number is one here
	// Each level is the key or the index of the value that is read next. In an object, it is a key only after the key has been read.
	type level struct {
		object, afterKey bool
		index            int
		key              string
	}
	var path []level
	pointer := func() string {
		var text strings.Builder
		for _, l := range path {
			text.WriteByte('/')
			if l.object {
				text.WriteString(escapePointer(l.key))
			} else {
				text.WriteString(strconv.Itoa(l.index))
			}
		}
		return text.String()
	}
	for {
		token, err := tokens.Token()
		if err != nil {
			return ""
		}
		top := len(path) - 1
		if token == json.Delim('}') || token == json.Delim(']') {
			path = path[:top]
			top--
		} else if top >= 0 && path[top].object && !path[top].afterKey {
			path[top].key, path[top].afterKey = fmt.Sprint(token), true
			continue
		}
		if tokens.InputOffset() >= offset {
			return pointer()
		}
		switch token {
		case json.Delim('{'):
			path = append(path, level{object: true})
			continue
		case json.Delim('['):
			path = append(path, level{})
			continue
		}
		if top >= 0 {
			path[top].index++
			path[top].afterKey = false
		}
	}
}

// escapePointer returns a key as a part of a JSON pointer, cut after 64 bytes.
func escapePointer(key string) string {
	return finding.TruncateText(strings.NewReplacer("~", "~0", "/", "~1").Replace(key), 64)
}

var serialNumber = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// checkHeader checks the fields that do not depend on each other's order.
func (d *decoder) checkHeader(now time.Time) (err error) {
	document := d.document
	switch {
	case !d.seen["bomFormat"]:
		return &DocumentError{ErrUnsupported, "/bomFormat", "it is missing: only CycloneDX in JSON is supported"}
	case d.format != "CycloneDX":
		return &DocumentError{ErrUnsupported, "/bomFormat", "it must be CycloneDX"}
	case !slices.Contains(SpecVersions, document.SpecVersion):
		return &DocumentError{ErrUnsupported, "/specVersion", "the supported versions are " + strings.Join(SpecVersions, ", ")}
	case d.seen["serialNumber"] && !serialNumber.MatchString(document.SerialNumber):
		return invalid("/serialNumber", "it must be urn:uuid: and a UUID in lower case")
	case document.Version < 1:
		return invalid("/version", "it must be at least 1")
	case d.timestamp == "":
		return invalid("/metadata/timestamp", "it is missing: it tells which of two documents is newer")
	case !d.listed["/vulnerabilities"]:
		return invalid("/vulnerabilities", "it is missing: an empty list says that there are none")
	}
	if document.Timestamp, err = time.Parse(time.RFC3339, d.timestamp); err != nil {
		return invalid("/metadata/timestamp", "it must be a time as in RFC 3339, such as 2026-03-01T12:00:00Z")
	}
	document.Timestamp = document.Timestamp.UTC()
	switch year := document.Timestamp.Year(); {
	case document.Timestamp.After(now.Add(maxClockSkew)):
		return invalid("/metadata/timestamp", "it is more than %d minutes in the future", int(maxClockSkew.Minutes()))
	case year < 2000:
		return invalid("/metadata/timestamp", "it is before the year 2000")
	}
	return nil
}

// ignore records a part of the document that stands for no finding.
func (d *decoder) ignore(pointer, reason string) {
	if d.document.IgnoredCount++; d.document.IgnoredCount <= maxIgnored {
		d.document.Ignored = append(d.document.Ignored, Ignored{pointer, reason})
	}
}

// keep counts texts that stay in memory until the end of the document.
func (d *decoder) keep(pointer string, bytes int) error {
	if d.kept += bytes; d.kept > maxKept {
		return limitExceeded(pointer, "the texts of the document have more than %d MiB", maxKept>>20)
	}
	return nil
}
