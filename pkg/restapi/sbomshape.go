package restapi

import (
	"fmt"
	"strings"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxShapeText bounds the names and values that an sbomShape keeps, in bytes. Longer ones are none that it looks for.
const maxShapeText = 32

// sbomError is what is wrong with an SBOM. Its text is sent to the caller.
type sbomError struct{ text string }

// Error implements error.
func (e *sbomError) Error() string { return e.text }

// documentShape is how a document of a format is recognized: by the value of a field that begins with a text, and by its list of packages.
type documentShape struct {
	format               restv1.SBOMFormat
	field, begins, named string
	packages             string
}

var documentShapes = []documentShape{
	{restv1.FormatSyft, "", "", "syft-json", "artifacts"},
	{restv1.FormatCycloneDX, "specVersion", "1.", "CycloneDX 1.x", "components"},
	{restv1.FormatSPDX, "spdxVersion", "SPDX-2.", "SPDX 2.x", "packages"},
}

// sbomShape follows a JSON text that is written to it, and finds out whether it looks like an SBOM of its format. It keeps next to nothing of the
// text. Whether the SBOM can be used is decided by the catalog Job, which decodes it: the manager does not, since a document can take many times its
// size in memory.
type sbomShape struct {
	documentShape
	started, inText, escaped, isValue, ended bool
	depth                                    int
	// key is the name of the present field at the top level, text the present text there, and found the value of the field that is looked for.
	key, text, found []byte
	entries          int
}

// newSBOMShape returns the shape of documents with a media type; known is false if there is none.
func newSBOMShape(mediaType string) (shape *sbomShape, known bool) {
	for _, format := range sbomFormats {
		for _, d := range documentShapes {
			if format.mediaType == mediaType && d.format == format.name {
				return &sbomShape{documentShape: d}, true
			}
		}
	}
	return nil, false
}

// sbomMediaTypes lists the media types of SBOMs.
func sbomMediaTypes() string {
	all := make([]string, len(sbomFormats))
	for i, format := range sbomFormats {
		all[i] = format.mediaType
	}
	return strings.Join(all, ", ")
}

// Write implements io.Writer.
func (s *sbomShape) Write(piece []byte) (int, error) {
	for i, c := range piece {
		if s.inText {
			s.continueText(c)
		} else if err := s.acceptOutside(c); err != nil {
			return i, err
		}
	}
	return len(piece), nil
}

// continueText follows a string. Only those at the top level are kept, with their escapes.
func (s *sbomShape) continueText(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inText = false
		s.endText()
		return
	}
	if s.depth == 1 && len(s.text) <= maxShapeText {
		s.text = append(s.text, c)
	}
}

func (s *sbomShape) endText() {
	switch {
	case s.depth != 1:
	case !s.isValue:
		s.key = append(s.key[:0], s.text...)
	case string(s.key) == s.field:
		s.found = append(s.found[:0], s.text...)
	}
}

// acceptOutside follows what is outside of strings.
func (s *sbomShape) acceptOutside(c byte) error {
	switch c {
	case ' ', '\n', '\r', '\t':
		return nil
	case '{', '[':
		if s.ended || !s.started && c != '{' {
			return &sbomError{"it is no JSON object"}
		}
		s.started = true
		if s.depth++; s.depth == 3 && c == '{' && string(s.key) == s.packages {
			s.entries++
		}
		if s.entries > workerapi.MaxPackages {
			return &sbomError{fmt.Sprintf("it lists more than %d packages", workerapi.MaxPackages)}
		}
		return nil
	}
	if !s.started || s.ended {
		return &sbomError{"it is no JSON object"}
	}
	switch {
	case c == '"':
		s.inText, s.text = true, s.text[:0]
	case c == '}' || c == ']':
		s.depth--
		s.ended = s.depth == 0
	case s.depth == 1 && c == ':':
		s.isValue = true
	case s.depth == 1 && c == ',':
		s.isValue = false
	}
	return nil
}

// problem returns what is wrong with the text as a whole; empty if it looks like an SBOM.
func (s *sbomShape) problem() string {
	switch {
	case !s.ended:
		return "it is no JSON object, or not whole"
	case s.field != "" && !strings.HasPrefix(string(s.found), s.begins):
		return fmt.Sprintf("it is not %s: %s is %q", s.named, s.field, s.found)
	case s.entries == 0:
		return fmt.Sprintf("it lists no packages: %s has no objects", s.packages)
	}
	return ""
}
