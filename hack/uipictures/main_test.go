package main

import (
	"image"
	"image/color"
	"testing"
)

// TestReduce: a picture keeps its frequent colours, and is cut below.
func TestReduce(t *testing.T) {
	from := image.NewRGBA(image.Rect(0, 0, 200, 2000))
	for y := range 2000 {
		for x := range 200 {
			from.Set(x, y, color.RGBA{R: 250, G: 250, B: 250, A: 255})
		}
		from.Set(y%200, y, color.RGBA{R: uint8(y % 251), G: uint8(y % 13), A: 255})
	}
	from.Set(3, 0, color.RGBA{B: 255, A: 255})
	got := reduce(from)
	if got.Bounds().Dy() != maxHeight || len(got.Palette) != maxColours {
		t.Errorf("%d lines in %d colours, want %d in %d", got.Bounds().Dy(), len(got.Palette), maxHeight, maxColours)
	}
	if c := got.At(100, 0); c != (color.RGBA{R: 250, G: 250, B: 250, A: 255}) {
		t.Errorf("the most frequent colour is %v", c)
	}
}
