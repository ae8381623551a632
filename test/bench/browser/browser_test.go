package browser

import "testing"

// TestSection: each bound is broken by its own figure, and a figure that is missing is an error.
func TestSection(t *testing.T) {
	good := func() figures {
		return figures{
			Paints: []float64{900, 1000, 3000}, Shown: []float64{1500}, Keys: append(make([]float64, 95), 100), Heap: []float64{30 << 20, 31 << 20},
			Nodes: 1500, Requests: []string{"GET /", "GET /api/v1/session", "GET /a", "GET /b", "GET /api/v1/events?since=0-1"},
		}
	}
	section, err := good().section()
	if err != nil || !section.Kept() {
		t.Fatalf("bounds %+v (%v), want all kept", section.Bounds, err)
	}
	for name, breakBound := range map[string]func(*figures){
		"paint":              func(f *figures) { f.Paints = []float64{1, 1001, 1002} },
		"keys":               func(f *figures) { f.Keys = []float64{16, 101} },
		"heap":               func(f *figures) { f.Heap = []float64{41 << 20, 41 << 20} },
		"growth":             func(f *figures) { f.Heap = []float64{10 << 20, 13 << 20} },
		"elements":           func(f *figures) { f.Nodes = 1501 },
		"requests":           func(f *figures) { f.Requests = []string{"1", "2", "3", "4", "5"} },
		"a repeated request": func(f *figures) { f.Requests = []string{"1", "1"} },
	} {
		f := good()
		breakBound(&f)
		section, err := f.section()
		broken := 0
		for _, b := range section.Bounds {
			if !b.Kept {
				broken++
			}
		}
		if err != nil || broken != 1 {
			t.Errorf("%s: %d bounds are broken (%v), want one", name, broken, err)
		}
	}
	f := good()
	f.Keys = nil
	if _, err := f.section(); err == nil {
		t.Error("without keys there is no error")
	}
}
