// Package benchmark reads the figures of Go's benchmarks.
package benchmark

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Figures are the values of one benchmark by unit.
type Figures map[string]float64

// Output has the figures of benchmarks by name, such as "BenchmarkA/b", without the number of processors. Names are in the order of the output.
type Output struct {
	Names   []string
	Figures map[string]Figures
}

// Run runs a command in a directory, copies its output to that of this process, and returns the figures in it. The error does not say why a
// benchmark failed: the output does.
func Run(ctx context.Context, dir string, command ...string) (Output, error) {
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	var output bytes.Buffer
	run.Dir, run.Stdout, run.Stderr = dir, io.MultiWriter(os.Stdout, &output), os.Stderr
	if err := run.Run(); err != nil {
		return Output{}, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return Parse(output.String()), nil
}

// Parse reads the output of benchmarks (https://go.dev/design/14313-benchmark-format).
func Parse(output string) Output {
	found := Output{Figures: map[string]Figures{}}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := fields[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		figures := Figures{}
		for pair := fields[2:]; len(pair) >= 2; pair = pair[2:] {
			if value, err := strconv.ParseFloat(pair[0], 64); err == nil {
				figures[pair[1]] = value
			}
		}
		found.Names, found.Figures[name] = append(found.Names, name), figures
	}
	return found
}

// Value returns a figure of a benchmark, or an error if it is missing.
func (o Output) Value(benchmark, unit string) (float64, error) {
	value, found := o.Figures[benchmark][unit]
	if !found {
		return 0, fmt.Errorf("%s has no figure in %s", benchmark, unit)
	}
	return value, nil
}
