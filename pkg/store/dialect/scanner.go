package dialect

import (
	"errors"
	"strings"
)

type tokenKind int

const (
	tokenOther     tokenKind = iota // white space, an operator, a quoted text or a comment
	tokenWord                       // a keyword or a name
	tokenParameter                  // @name, ? or ?3
)

// scanner splits SQL into tokens. The concatenation of all tokens is the text.
type scanner struct {
	text  string
	kind  tokenKind
	token string
	err   error
}

var errQuote = errors.New("a quote or parenthesis is not closed")

// next reads the next token. It returns false at the end and after an error.
func (s *scanner) next() bool {
	if s.text == "" || s.err != nil {
		return false
	}
	s.kind = tokenOther
	n := 1
	switch c := s.text[0]; {
	case c == '\'' || c == '"':
		end := strings.IndexByte(s.text[1:], c)
		if end < 0 {
			s.err = errQuote
			return false
		}
		n = end + 2
	case strings.HasPrefix(s.text, "--"):
		if n = strings.IndexByte(s.text, '\n'); n < 0 {
			n = len(s.text)
		}
	case c == '@' || c == '?':
		s.kind = tokenParameter
		n += wordLength(s.text[1:])
	case isWord(c):
		s.kind = tokenWord
		n = wordLength(s.text)
	}
	s.token, s.text = s.text[:n], s.text[n:]
	return true
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func wordLength(text string) (n int) {
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return n
}

const whiteSpace = " \t\r\n"

// follows reports whether the next word is this one.
func (s *scanner) follows(word string) bool {
	rest := strings.TrimLeft(s.text, whiteSpace)
	n := wordLength(rest)
	return strings.EqualFold(rest[:n], word)
}

// skipTo reads up to a word that follows.
func (s *scanner) skipTo(word string) {
	s.text = strings.TrimLeft(s.text, whiteSpace)[len(word):]
}

// word reads the next word.
func (s *scanner) word() (string, error) {
	s.text = strings.TrimLeft(s.text, whiteSpace)
	n := wordLength(s.text)
	if n == 0 {
		return "", errors.New("a name is missing")
	}
	word := s.text[:n]
	s.text = s.text[n:]
	return word, nil
}

func (s *scanner) followedByParenthesis() bool { return strings.HasPrefix(s.text, "(") }

// arguments reads the arguments of a macro with their parentheses.
func (s *scanner) arguments() (args []string, err error) {
	depth, arg := 0, ""
	for s.next() {
		switch s.token {
		case "(":
			if depth++; depth == 1 {
				continue
			}
		case ")":
			if depth--; depth == 0 {
				return append(args, arg), nil
			}
		case ",":
			if depth == 1 {
				args, arg = append(args, arg), ""
				continue
			}
		}
		arg += s.token
	}
	return nil, errors.Join(errQuote, s.err)
}
