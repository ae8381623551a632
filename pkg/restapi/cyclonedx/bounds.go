package cyclonedx

import "io"

// Bounds of a document that Decode reads. They bound its memory, whatever the document contains.
const (
	// MaxFindings bounds the pairs of a vulnerability and a component that it affects.
	MaxFindings = 50_000
	// maxComponents bounds the components, nested ones included.
	maxComponents = 100_000
	// maxDepth bounds how deep lists and objects are nested.
	maxDepth = 64
	// maxText bounds a string or a number, in bytes of JSON.
	maxText = 64 << 10
	// maxElement bounds one component, one vulnerability or the metadata, in bytes of JSON.
	maxElement = 4 << 20
	// maxKept bounds all texts that are kept until the end of the document, in bytes.
	maxKept = 48 << 20
)

// boundedReader reads a JSON text and returns an error at the first byte that exceeds maxDepth, maxText or maxElement. It passes on all bytes
// before. It does not check whether the text is JSON.
type boundedReader struct {
	from io.Reader
	err  error
	// recent are the bytes that were passed on since an offset.
	recent []byte
	since  int64

	depth            int
	inText, escaped  bool
	text, element    int
	topLevelIsObject bool
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.from.Read(p)
	b.err = err
	for i, c := range p[:n] {
		if exceeded := b.accept(c); exceeded != nil {
			n, b.err = i, exceeded
			break
		}
	}
	b.recent = append(b.recent, p[:n]...)
	return n, nil
}

// forget lets go of the bytes before an offset.
func (b *boundedReader) forget(before int64) {
	if gone := before - b.since; gone > maxText {
		b.recent, b.since = append(b.recent[:0], b.recent[gone:]...), before
	}
}

// after returns the bytes from an offset on that was not let go of.
func (b *boundedReader) after(offset int64) []byte { return b.recent[offset-b.since:] }

// accept follows the text by one byte.
func (b *boundedReader) accept(c byte) error {
	if b.element++; b.depth < 2 || b.depth == 2 && !b.topLevelIsObject {
		b.element = 0
	}
	if b.element > maxElement {
		return limitExceeded("", "it has more than %d MiB", maxElement>>20)
	}
	if b.inText {
		b.continueText(c)
	} else if err := b.acceptOutside(c); err != nil {
		return err
	}
	if b.text > maxText {
		return limitExceeded("", "a text has more than %d KiB", maxText>>10)
	}
	return nil
}

// continueText follows a string.
func (b *boundedReader) continueText(c byte) {
	b.text++
	switch {
	case b.escaped:
		b.escaped = false
	case c == '\\':
		b.escaped = true
	case c == '"':
		b.inText, b.text = false, 0
	}
}

// acceptOutside follows what is outside of strings. The bytes of a number count as a text.
func (b *boundedReader) acceptOutside(c byte) error {
	switch c {
	case '"':
		b.inText, b.text = true, 0
	case '{', '[':
		b.text = 0
		if b.depth++; b.depth > maxDepth {
			return limitExceeded("", "it is nested deeper than %d levels", maxDepth)
		}
		if b.depth == 2 {
			b.topLevelIsObject = c == '{'
		}
	case '}', ']':
		b.text = 0
		b.depth--
	case ',', ':', ' ', '\n', '\r', '\t':
		b.text = 0
	default:
		b.text++
	}
	return nil
}
