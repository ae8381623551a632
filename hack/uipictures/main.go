// Command uipictures makes the pictures of the web UI in the documents from the screenshots of
// "make demo CI=1": it cuts them to one height, and
// reduces them to a palette, which makes them small.
//
//	uipictures SCREENSHOTS-DIRECTORY PICTURES-DIRECTORY
package main

import (
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pictures are the names of screenshots, without their ending.
var pictures = []string{"ui-actions-light", "ui-vulnerability-dark", "ui-images-dark", "ui-image-light"}

// Bounds of a picture: pixels, and colours.
const (
	maxHeight  = 720
	maxColours = 256
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: uipictures SCREENSHOTS-DIRECTORY PICTURES-DIRECTORY")
		os.Exit(2)
	}
	for _, name := range pictures {
		if err := convert(filepath.Join(os.Args[1], name+".png"), filepath.Join(os.Args[2], strings.TrimPrefix(name, "ui-")+".png")); err != nil {
			fmt.Fprintln(os.Stderr, "uipictures: make demo CI=1 writes the screenshots:", err)
			os.Exit(1)
		}
	}
}

func convert(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	screenshot, err := png.Decode(file)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	return errors.Join(encoder.Encode(out, reduce(screenshot)), out.Close())
}

// reduce returns the upper part of a picture in its most frequent colours.
func reduce(from image.Image) *image.Paletted {
	bounds := from.Bounds()
	bounds.Max.Y = min(bounds.Max.Y, bounds.Min.Y+maxHeight)
	count := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	palette := make(color.Palette, 0, maxColours)
	for _, c := range frequent[:min(len(frequent), maxColours)] {
		palette = append(palette, c)
	}
	to := image.NewPaletted(bounds, palette)
	draw.Draw(to, bounds, from, bounds.Min, draw.Src)
	return to
}
