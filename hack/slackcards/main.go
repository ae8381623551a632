// Command slackcards draws Slack messages as they read on a phone: for each file with a message in Block Kit an SVG file of
// the same name.
//
//	slackcards DIRECTORY MESSAGE.golden.json…
//
// The pictures are plain text with the viewer's fonts. Drawing them needs none, so that they are the same wherever it is done: where
// lines are broken goes by built-in widths.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// message is what is drawn of a message.
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
