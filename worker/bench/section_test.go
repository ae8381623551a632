package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// section is the result of one benchmark. test/bench/page reads it.
type section struct {
	// Text is Markdown.
	Text   string  `json:"text"`
	Bounds []bound `json:"bounds"`
}

// bound is a promise, and whether it was kept.
type bound struct {
	What string `json:"what"`
	Kept bool   `json:"kept"`
}

// settings are those of "make bench".
type settings struct {
	// result is the file for the section.
	result string
	// bin is the directory of the programs: scanner-grype, grype, syft, measured.
	bin string
}

func setUp(t *testing.T) settings {
	t.Helper()
	s := settings{result: os.Getenv("BENCH_RESULT"), bin: os.Getenv("BENCH_BIN")}
	if s.result == "" || s.bin == "" {
		t.Skip("run by make bench")
	}
	return s
}

func (s settings) program(name string) string { return filepath.Join(s.bin, name) }

// write writes the section to its file. A broken bound fails the test.
func (s settings) write(t *testing.T, section section) {
	t.Helper()
	raw, err := json.Marshal(section)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.result, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range section.Bounds {
		if !b.Kept {
			t.Errorf("not kept: %s", b.What)
		}
	}
}

// spread is a median with the smallest and the largest value.
type spread[T ~int64] struct{ median, least, most T }

func spreadOf[T ~int64](values []T) spread[T] {
	sorted := slices.Sorted(slices.Values(values))
	return spread[T]{median: sorted[len(sorted)/2], least: sorted[0], most: sorted[len(sorted)-1]}
}

// text writes a spread with a unit: "1.23 s (1.20 to 1.31)".
func (s spread[T]) text(unit T, name string) string {
	in := func(v T) float64 { return float64(v) / float64(unit) }
	if s.least == s.most {
		return fmt.Sprintf("%.*f %s", digits(in(s.median)), in(s.median), name)
	}
	return fmt.Sprintf("%.*f %s (%.*f to %.*f)", digits(in(s.median)), in(s.median), name, digits(in(s.median)), in(s.least), digits(in(s.median)), in(s.most))
}

// digits returns how many digits after the decimal point are significant.
func digits(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}

func seconds(s spread[time.Duration]) string { return s.text(time.Second, "s") }
func mebibytes(s spread[int64]) string       { return s.text(1<<20, "MiB") }

// table returns a Markdown table.
func table(rows ...[]string) string {
	var out strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			out.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return out.String()
}
