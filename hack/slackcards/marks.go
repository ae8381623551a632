package main

import "fmt"

// shapes are the emoji that the notifier uses, as SVG elements within a square of 16 by 16. Fonts with emoji are not on every machine, and
// differ; a shape looks the same everywhere.
var shapes = map[rune]string{
	'🚨': `<path d="M3 13V9a5 5 0 0 1 10 0v4z" fill="#d7263d"/><path d="M1 13h14v2H1z" fill="#5c6b7a"/><path d="M8 0v2M1.5 3l1.6 1.4M14.5 3l-1.6 1.4" stroke="#d7263d" stroke-width="1.6"/>`,
	'🟥': `<rect x="1.5" y="1.5" width="13" height="13" rx="2" fill="#d7263d"/>`,
	'🔶': `<path d="M8 0.5 15.5 8 8 15.5 0.5 8z" fill="#f2872c"/>`,
	'🟡': `<circle cx="8" cy="8" r="6.8" fill="#f5c518"/>`,
	'🔹': `<path d="M8 4 12 8 8 12 4 8z" fill="#3b88c3"/>`,
	'⚪': `<circle cx="8" cy="8" r="6.2" fill="#ffffff" stroke="#8a949e" stroke-width="1.6"/>`,
	'❔': `<path d="M4.6 5.4a3.4 3.4 0 1 1 5 3C8.4 9 8 9.6 8 10.8" fill="none" stroke="#8a949e" stroke-width="2.2"/><circle cx="8" cy="13.8" r="1.4" fill="#8a949e"/>`,
	'✅': `<rect x="1" y="1" width="14" height="14" rx="2" fill="#3f9c5a"/><path d="m4 8.2 2.8 3L12 5" fill="none" stroke="#ffffff" stroke-width="2"/>`,
	'⚠': `<path d="M8 1 15.5 15H0.5z" fill="#f5c518"/><path d="M8 5.5v5M8 12v1.6" stroke="#1d1c1d" stroke-width="1.6"/>`,
}

// mark draws an emoji as tall as text of a size, whose left end and baseline are at x and y.
func (c *card) mark(emoji string, x, y, size float64) {
	scale := size * 1.02 / 16
	fmt.Fprintf(&c.body, `<g transform="translate(%.1f %.1f) scale(%.3f)">%s</g>`+"\n", x, y-size*0.84, scale, shapes[[]rune(emoji)[0]])
}
