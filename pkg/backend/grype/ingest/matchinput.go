package ingest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// verifyMatchInput reads a match input to its end. It must be complete zstd of at most limit bytes, and a syft-json document with no more
// packages and relationships than a match worker can hold. The number of entries matters because a few bytes of input can take a thousand
// in the worker's memory. visit gets each package; nil for none.
func verifyMatchInput(compressed io.Reader, limit int64, visit func(finding.Package)) error {
	content, err := decompress(compressed, limit)
	if err != nil {
		return err
	}
	defer content.Close()
	pieces := &pieceReader{from: content}
	counter := &entryCounter{json: json.NewDecoder(pieces), pieces: pieces, entries: map[string]int{}, visit: visit}
	counter.json.UseNumber() // a number that is not read may have any value
	err = counter.read()
	if err == nil {
		// The end of the document may come before the end of the content.
		_, err = io.Copy(io.Discard, content)
	}
	var refused *refusal
	if err == nil || errors.As(err, &refused) || isTooLarge(err) {
		return err
	}
	return refuse(http.StatusBadRequest, "the match input is not whole: %v", err)
}

// boundedLists names the lists whose entries a match worker holds in memory, with a description of the entries.
var boundedLists = map[string]string{"artifacts": "packages", "artifactRelationships": "packages that belong to another one"}

// entryCounter reads a document token by token, so that it is never in memory as a whole.
type entryCounter struct {
	json   *json.Decoder
	pieces *pieceReader
	// entries counts the entries of the bounded lists, by name.
	entries map[string]int
	// visit gets each package; nil for none.
	visit func(finding.Package)
}

func (c *entryCounter) read() error {
	switch start, err := c.next(); {
	case err != nil:
		return err
	case start != json.Delim('{'):
		return errors.New("it is no object")
	}
	for c.json.More() {
		name, err := c.next()
		if err != nil {
			return err
		}
		key, _ := name.(string)
		if err := c.value(key); err != nil {
			return err
		}
	}
	_, err := c.next()
	return err
}

// maxNesting bounds the nesting of lists and objects. The decoder keeps eight bytes for each level, and a few bytes of zstd can encode
// many levels. json.Unmarshal has the same bound.
const maxNesting = 10_000

// value reads the value of a field of the document, whatever its type.
func (c *entryCounter) value(name string) error {
	what, counted := boundedLists[name]
	packages := packageReader{visit: c.visit}
	for depth := 0; ; {
		token, err := c.next()
		if err != nil {
			return err
		}
		if counted && depth == 1 && token != json.Delim(']') && token != json.Delim('}') {
			if c.entries[name]++; c.entries[name] > workerapi.MaxPackages {
				return refuse(http.StatusUnprocessableEntity, "the match input has more than %d %s; exclude the image", workerapi.MaxPackages, what)
			}
		}
		if name == "artifacts" && c.visit != nil {
			packages.read(depth, token)
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			if depth++; depth > maxNesting {
				return refuse(http.StatusUnprocessableEntity, "the match input has more than %d levels of lists and objects", maxNesting)
			}
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// packageReader reads the fields of packages that identify them from the tokens of their list.
type packageReader struct {
	visit func(finding.Package)
	now   finding.Package
	// field is the field whose value comes next, after hasField is true.
	field    string
	hasField bool
}

// read reads a token at a depth: 1 in the list, 2 in a package.
func (r *packageReader) read(depth int, token json.Token) {
	text, isText := token.(string)
	_, isDelim := token.(json.Delim)
	switch {
	case depth == 1:
		r.now, r.hasField = finding.Package{}, false
	case depth == 2 && token == json.Delim('}'):
		r.visit(r.now)
	case depth == 2 && !r.hasField:
		r.field, r.hasField = text, true
	case depth == 2 && isText:
		if to := map[string]*string{"name": &r.now.Name, "version": &r.now.Version, "type": &r.now.Type, "purl": &r.now.PURL}[r.field]; to != nil {
			*to = text
		}
		r.hasField = false
	case depth == 2:
		r.hasField = isDelim // until the end of the list or object
	case depth == 3 && (token == json.Delim(']') || token == json.Delim('}')):
		r.hasField = false
	}
}

func (c *entryCounter) next() (json.Token, error) {
	c.pieces.next()
	return c.json.Token()
}
