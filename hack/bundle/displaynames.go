package main

import (
	"strings"
	"unicode"
)

// acronyms maps lower-case words to the spelling in display names.
var acronyms = map[string]string{"url": "URL", "ca": "CA", "id": "ID", "hmac": "HMAC"}

// display returns the display name of a field: webhookURLSecretRef becomes "Webhook URL Secret Ref".
func display(name string) string {
	words := strings.Fields(spaced(name))
	for i, word := range words {
		switch {
		case acronyms[word] != "":
			words[i] = acronyms[word]
		case strings.ToUpper(word) == word:
		default:
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, " ")
}

// spaced inserts a space before each capital letter that begins a word, and keeps acronyms together.
func spaced(name string) string {
	var text strings.Builder
	letters := []rune(name)
	for i, letter := range letters {
		begins := i > 0 && unicode.IsUpper(letter) && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if begins {
			text.WriteByte(' ')
		}
		text.WriteRune(letter)
	}
	return text.String()
}
