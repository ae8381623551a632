package main

// widths are the widths of Helvetica's printable ASCII characters from the space on, in thousandths of the font size, from Adobe's core
// font metrics.
var widths = [...]float64{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, // blank to /
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, // 0 to ?
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, // @ to O
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, // P to _
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, // ` to o
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, // p to ~
}

// otherWidths are the widths of other characters that messages use. anyWidth is the width of all others.
var otherWidths = map[rune]float64{'\u00a0': 278, '·': 333, '•': 350, '→': 1000, '…': 1000}

const anyWidth = 600

const (
	// boldFactor is the approximate ratio of bold to regular widths.
	boldFactor = 1.07
	// markWidth is the width of a mark.
	markWidth = 1150
	// codeWidth is the width of a character of code.
	codeWidth = 600
	// spare leaves room for fonts that are wider than Helvetica, in viewers that do not fit text into a width.
	spare = 1.15
)

// width returns the approximate width of a text in pixels.
func width(s string, st style, size float64) float64 {
	total := 0.0
	for _, r := range s {
		switch other, isOther := otherWidths[r]; {
		case st.mark:
			total += markWidth
		case st.code:
			total += codeWidth * codeFactor
		case r >= ' ' && r <= '~':
			total += widths[r-' ']
		case isOther:
			total += other
		default:
			total += anyWidth
		}
	}
	if st.bold && !st.code {
		total *= boldFactor
	}
	if st.faint {
		total *= appFactor
	}
	return total * size / 1000
}
