package main

import (
	"html"
	"strings"
	"unicode/utf8"
)

// style is the style of a run. A mark is an emoji that is drawn as a shape.
type style struct{ bold, link, code, faint, mark bool }

// run is text of one style. A line break is a run of its own.
type run struct {
	text  string
	style style
}

// emoji replaces the names of the emoji that the notifier uses.
var emoji = strings.NewReplacer(":warning:", "⚠")

// parse parses the mrkdwn that the notifier writes: bold, code, links, emoji and the three entities
// (https://docs.slack.dev/messaging/formatting-message-text).
func parse(s string) []run {
	s = emoji.Replace(s)
	var runs []run
	var now style
	start := 0
	end := func(i int) {
		if i > start {
			runs = append(runs, run{text: html.UnescapeString(s[start:i]), style: now})
		}
		start = i + 1
	}
	for i, r := range s {
		switch {
		case i < start: // part of a link
		case r == '\n':
			end(i)
			runs = append(runs, run{text: "\n"})
		case r == '`':
			end(i)
			now.code = !now.code
		case now.code: // mrkdwn has no other marks inside code
		case shapes[r] != "":
			end(i)
			runs = append(runs, run{text: string(r), style: style{mark: true}})
			start = i + utf8.RuneLen(r)
		case r == '*':
			end(i)
			now.bold = !now.bold
		case r == '<':
			end(i)
			target, rest, _ := strings.Cut(s[i+1:], ">")
			_, label, labelled := strings.Cut(target, "|")
			if !labelled {
				label = target
			}
			runs = append(runs, run{text: html.UnescapeString(label), style: style{bold: now.bold, link: true}})
			start = len(s) - len(rest)
		}
	}
	end(len(s))
	return runs
}

// wrap breaks runs into lines of at most limit pixels, at spaces. A word that is longer than a line is broken inside. A mark stays with
// the word after it. Each line has one run for each change of style.
func wrap(runs []run, size, limit float64) [][]run {
	lines := [][]run{nil}
	x := 0.0
	add := func(text string, st style) {
		last := &lines[len(lines)-1]
		if n := len(*last); n > 0 && (*last)[n-1].style == st {
			(*last)[n-1].text += text
		} else {
			*last = append(*last, run{text: text, style: st})
		}
		x += width(text, st, size)
	}
	for i, r := range runs {
		if r.text == "\n" {
			lines, x = append(lines, nil), 0
			continue
		}
		for word := range strings.SplitAfterSeq(r.text, " ") {
			needed := width(strings.TrimSuffix(word, " "), r.style, size)
			if r.style.mark && i+1 < len(runs) {
				next, _, _ := strings.Cut(runs[i+1].text, " ")
				needed += width(next, runs[i+1].style, size)
			}
			if x > 0 && x+needed > limit {
				lines, x = append(lines, nil), 0
			}
			for width(strings.TrimSuffix(word, " "), r.style, size) > limit {
				cut := fitting(word, r.style, size, limit)
				add(word[:cut], r.style)
				word = word[cut:]
				lines, x = append(lines, nil), 0
			}
			if word != "" {
				add(word, r.style)
			}
		}
	}
	return lines
}

// fitting returns the number of bytes of a word that fit: at least one character.
func fitting(word string, st style, size, limit float64) int {
	fits := 0
	for i := range word {
		if fits > 0 && width(word[:i], st, size) > limit {
			break
		}
		fits = i
	}
	return max(fits, 1)
}
