// Command slackcards draws Slack messages as they appear on a phone. For each file with a Block Kit message it writes an SVG file of the
// same name.
//
//	slackcards DIRECTORY MESSAGE.golden.json…
//
// The drawings contain text that is shown with the viewer's fonts. Drawing needs no fonts: built-in widths decide where lines break, so
// the result is the same on every machine.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// message is the part of a Slack message that is drawn.
type message struct {
	Text   string  `json:"text"`
	Blocks []block `json:"blocks"`
}

type block struct {
	Type     string `json:"type"`
	Text     text   `json:"text"`
	Elements []text `json:"elements"`
}

type text struct {
	Text string `json:"text"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: slackcards DIRECTORY MESSAGE.golden.json…")
		os.Exit(2)
	}
	for _, path := range os.Args[2:] {
		if err := drawFile(os.Args[1], path); err != nil {
			fmt.Fprintf(os.Stderr, "slackcards: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func drawFile(directory, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	svg, err := draw(m)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".golden.json") + ".svg"
	return os.WriteFile(filepath.Join(directory, name), []byte(svg), 0o644)
}
