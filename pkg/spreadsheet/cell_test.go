package spreadsheet

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestText: no cell is a formula, whatever white space it begins with, and whichever separators a spreadsheet expects.
func TestText(t *testing.T) {
	for cell, want := range map[string]string{
		"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0", "+1": "'+1", "-1": "'-1", "@SUM(1)": "'@SUM(1)", "＝1": "'＝1", "－1": "'－1",
		" =1": "' =1", "\u00a0=1": "'\u00a0=1", "\v=1": "'\v=1", "\tx": "'\tx", "\rx": "'\rx", "\nx": "'\nx", "\t=1": "'\t'=1",
		"x;=1+1;y": "x;'=1+1;y", "x; @y": "x; '@y", "x\t=1": "x\t'=1", "x\n-1\n+2": "x\n'-1\n'+2", "x;y": "x;y",
		"x;\"=1+1;y": "x;\"'=1+1;y", "x; \" \"@y": "x; \" \"'@y", "\"=1": "\"=1", "x;\"y": "x;\"y",
		"": "", " ": " ", "1=1": "1=1", "libssl3": "libssl3", "CVE-2026-0001": "CVE-2026-0001", "a@b": "a@b", "'=1": "'=1", "a,=1": "a,=1",
	} {
		if got := Text(cell); got != want {
			t.Errorf("%q is written as %q, want %q", cell, got, want)
		}
	}
}

// FuzzText: with the apostrophes taken away, a cell is what it was, and none of its parts is a formula.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "=1", "a;=1", " \t\r\n;;==＝", "'=", "\xff=", "\u2028=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cell string) { checkText(t, cell) })
}

// TestAnyText checks random cells of characters that have a meaning.
func TestAnyText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		checkText(t, rapid.StringOf(rapid.SampledFrom([]rune("=+-@＝a;,\t\r\n '\""))).Draw(rt, "cell"))
	})
}

func checkText(t *testing.T, cell string) {
	got := Text(cell)
	if strings.ReplaceAll(got, "'", "") != strings.ReplaceAll(cell, "'", "") {
		t.Errorf("%q is written as %q", cell, got)
	}
	for i, part := range regexp.MustCompile(`[;\t\r\n]`).Split(got, -1) {
		start := strings.TrimSpace(part)
		if i > 0 {
			start = strings.TrimLeft(start, "\" ")
		}
		if start != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(start)[0]) {
			t.Errorf("%q is written as %q, which has the formula %q", cell, got, part)
		}
	}
}
