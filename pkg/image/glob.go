package image

import (
	"strings"
	"unicode/utf8"
)

// Glob is a compiled glob: "*" stands for any number of any characters and "?" for one. Comparing it takes time that is linear in the length of the
// text, times 1/64 of the longest part between two "*" if that part contains "?". The zero value matches the empty text.
type Glob struct {
	// first and last are the parts before the first "*" and after the last one, and between those in the middle. Without a "*", first is the glob.
	first, last globPart
	between     []globPart
	hasStar     bool
}

// CompileGlob compiles a glob. Every text is a glob.
func CompileGlob(glob string) Glob {
	parts := strings.Split(glob, "*")
	g := Glob{first: compilePart(parts[0]), hasStar: len(parts) > 1}
	if !g.hasStar {
		return g
	}
	g.last = compilePart(parts[len(parts)-1])
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" { // several "*" in a row are one
			g.between = append(g.between, compilePart(part))
		}
	}
	return g
}

// IsGlob reports whether a text has a character that stands for others.
func IsGlob(text string) bool { return strings.ContainsAny(text, "*?") }

// Match reports whether the glob matches a whole text. Each part is taken at the first position that is possible, which leaves most to the others.
func (g Glob) Match(text string) bool {
	end, found := g.first.prefix(text)
	if !found || !g.hasStar {
		return found && end == len(text)
	}
	text = text[end:]
	start, found := g.last.suffix(text)
	if !found {
		return false
	}
	text = text[:start]
	for i := range g.between {
		if end = g.between[i].search(text); end < 0 {
			return false
		}
		text = text[end:]
	}
	return true
}

// globPart is a part of a glob without "*".
type globPart struct {
	text string
	// hasAny is true if the part has a "?". length is then its length in characters, and words that in words of 64 bits. masks has the positions at
	// which each of its characters may be, and anyMask those of "?".
	hasAny        bool
	length, words int
	masks         map[rune][]uint64
	anyMask       []uint64
}

func compilePart(text string) globPart {
	p := globPart{text: text, hasAny: strings.Contains(text, "?")}
	if !p.hasAny {
		return p
	}
	p.length = utf8.RuneCountInString(text)
	p.words = (p.length + 63) / 64
	p.masks, p.anyMask = make(map[rune][]uint64), make([]uint64, p.words)
	i := 0
	for _, c := range text {
		if c == '?' {
			p.anyMask[i/64] |= 1 << (i % 64)
		} else if p.masks[c] == nil {
			p.masks[c] = make([]uint64, p.words)
		}
		i++
	}
	i = 0
	for _, c := range text {
		if c != '?' {
			p.masks[c][i/64] |= 1 << (i % 64)
		}
		i++
	}
	for _, mask := range p.masks {
		for w := range mask {
			mask[w] |= p.anyMask[w]
		}
	}
	return p
}

// prefix returns where the part ends if a text begins with it.
func (p *globPart) prefix(text string) (end int, found bool) {
	if !p.hasAny {
		return len(p.text), strings.HasPrefix(text, p.text)
	}
	for rest := p.text; rest != ""; {
		if end == len(text) {
			return 0, false
		}
		want, wide := utf8.DecodeRuneInString(rest)
		_, size := utf8.DecodeRuneInString(text[end:])
		if want != '?' && rest[:wide] != text[end:end+size] {
			return 0, false
		}
		rest, end = rest[wide:], end+size
	}
	return end, true
}

// suffix returns where the part begins if a text ends with it.
func (p *globPart) suffix(text string) (start int, found bool) {
	if !p.hasAny {
		return len(text) - len(p.text), strings.HasSuffix(text, p.text)
	}
	start = len(text)
	for range p.length {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	end, found := p.prefix(text[start:])
	return start, found && start+end == len(text)
}

// search returns where the part ends at its first position in a text; -1 if it is not there. With "?" it follows all positions at once, a bit for each
// character of the part (Shift-And).
func (p *globPart) search(text string) (end int) {
	if !p.hasAny {
		if i := strings.Index(text, p.text); i >= 0 {
			return i + len(p.text)
		}
		return -1
	}
	reached := make([]uint64, p.words)
	last, bit := (p.length-1)/64, uint64(1)<<((p.length-1)%64)
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		i += size
		mask, known := p.masks[c]
		if !known {
			mask = p.anyMask
		}
		carry := uint64(1)
		for w := range reached {
			next := reached[w] >> 63
			reached[w] = (reached[w]<<1 | carry) & mask[w]
			carry = next
		}
		if reached[last]&bit != 0 {
			return i
		}
	}
	return -1
}

// Match reports whether a glob matches a reference: with its tag, with its digest, or its repository alone.
func Match(glob string, ref Reference) bool {
	g := CompileGlob(glob)
	return g.Match(ref.String()) || g.Match(ref.Repository) || ref.Digest != "" && g.Match(ref.Repository+"@"+ref.Digest)
}

// MatchText reports whether a glob matches a whole text.
func MatchText(glob, text string) bool { return CompileGlob(glob).Match(text) }
