package spreadsheet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type color string

type part struct {
	Name string `json:"name"`
}

type thing struct {
	ID     string    `json:"id"`
	Color  color     `json:"color"`
	Parts  []color   `json:"parts,omitempty"`
	Part   part      `json:"part"`
	Spare  *part     `json:"spare,omitempty"`
	Count  int       `json:"count"`
	Score  float64   `json:"score,omitempty"`
	Good   bool      `json:"good"`
	Made   time.Time `json:"made"`
	Ended  time.Time `json:"ended,omitzero"`
	Others []part    `json:"others"`
}

var columns = NewColumns[thing]("id", "color", "parts", "part.name", "spare.name", "count", "score", "good", "made", "ended")

func written(t testing.TB, raw bool, things ...thing) string {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, columns, raw)
	if err := errors.Join(w.WriteHeader(), w.Write(things), w.Flush()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestRows: each kind of field has the text that JSON has, and a field that JSON leaves out is an empty cell.
func TestRows(t *testing.T) {
	noon := time.Date(2026, 3, 1, 13, 0, 0, 5e6, time.FixedZone("CET", 3600))
	got := written(t, false,
		thing{ID: "a", Color: "red", Parts: []color{"x", "y z"}, Part: part{"p"}, Spare: &part{"-s"}, Count: -1, Score: 0.00043, Good: true, Made: noon, Ended: noon},
		thing{ID: "say \"b\", then\nc", Color: "=1", Part: part{"\xff"}, Made: noon},
	)
	want := "id,color,parts,part.name,spare.name,count,score,good,made,ended\r\n" +
		"a,red,\"x, y z\",p,'-s,-1,0.00043,true,2026-03-01T12:00:00.005Z,2026-03-01T12:00:00.005Z\r\n" +
		"\"say \"\"b\"\", then\r\nc\",'=1,,\uFFFD,,0,,false,2026-03-01T12:00:00.005Z,\r\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
	if raw := written(t, true, thing{ID: "=1", Parts: []color{"-x", "=y"}}); !strings.Contains(raw, "\r\n=1,,\"-x, =y\",") {
		t.Errorf("raw CSV is %q, want the texts as they are", raw)
	}
}

// TestAnyTextIsOneCell: whatever a text contains, it stays in its cell and its row.
func TestAnyTextIsOneCell(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a,;\"'\r\n\t=")))).Draw(rt, "text")
		rows, err := csv.NewReader(strings.NewReader(written(t, true, thing{ID: text, Color: "red"}))).ReadAll()
		if err != nil || len(rows) != 2 || len(rows[1]) != len(rows[0]) {
			rt.Fatalf("%q is read as %q, %v", text, rows, err)
		}
		// A carriage return is part of a line end or is left out.
		if without := strings.NewReplacer("\r", ""); without.Replace(rows[1][0]) != without.Replace(text) || rows[1][1] != "red" {
			rt.Errorf("%q is read as %q", text, rows[1])
		}
	})
}

// TestUnknownColumns: a column that does not exist, or that no cell can hold, is found when the program starts.
func TestUnknownColumns(t *testing.T) {
	for _, name := range []string{"", "missing", "part", "others", "id.name", "part.missing"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the column %q is accepted", name)
				}
			}()
			NewColumns[thing](name)
		}()
	}
}

// failingWriter takes some bytes and then returns an error.
type failingWriter int

func (w *failingWriter) Write(p []byte) (int, error) {
	if *w -= failingWriter(len(p)); *w < 0 {
		return 0, errors.New("the reader has left")
	}
	return len(p), nil
}

// TestWriteErrors: an error of the writer below ends a list, and is not lost.
func TestWriteErrors(t *testing.T) {
	w := NewWriter(new(failingWriter), columns, false)
	if err := w.WriteHeader(); err == nil {
		t.Error("the header is written though nothing takes it")
	}
	room := failingWriter(1000)
	w = NewWriter(&room, columns, false)
	if err := errors.Join(w.WriteHeader(), w.Write(make([]thing, 10_000)), w.Flush()); err == nil {
		t.Error("10,000 rows are written where 1,000 bytes have room")
	}
}
