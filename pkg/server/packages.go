package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// verifyMatchInput reads a match input to its end: it must be whole zstd of at most limit bytes, and a document of syft-json with no more
// packages and relationships than a match worker can hold. A few bytes of it can become a thousand in the worker's memory, whatever the size says.
func verifyMatchInput(compressed io.Reader, limit int64) error {
	content, err := decompress(compressed, limit)
	if err != nil {
		return err
	}
	defer content.Close()
	pieces := &pieceReader{from: content}
	err = (&entryCounter{json: json.NewDecoder(pieces), pieces: pieces, entries: map[string]int{}}).read()
	if err == nil {
		// The end of the document is not yet that of the content.
		_, err = io.Copy(io.Discard, content)
	}
	var refused *refusal
	if err == nil || errors.As(err, &refused) || errors.Is(err, errContentTooLarge) {
		return err
	}
	return refuse(http.StatusBadRequest, "the match input is not whole: %v", err)
}

// bounded are the lists of which a match worker holds all entries, with what these are.
var bounded = map[string]string{"artifacts": "packages", "artifactRelationships": "packages that belong to another one"}

// entryCounter walks through a document token by token, so that nothing of it is in memory as a whole.
type entryCounter struct {
	json   *json.Decoder
	pieces *pieceReader
	// entries counts those of the lists that are bounded, by name.
	entries map[string]int
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

// maxNesting bounds how deep lists and objects may lie in each other: the decoder keeps eight bytes for each level, for which few bytes of
// zstd are enough. json.Unmarshal has the same bound.
const maxNesting = 10_000

// value reads a value of any kind, which the document has under that name.
func (c *entryCounter) value(name string) error {
	what, counted := bounded[name]
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

func (c *entryCounter) next() (json.Token, error) {
	c.pieces.next()
	return c.json.Token()
}
