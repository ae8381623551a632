package spreadsheet

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MediaType is the media type of what a Writer writes (RFC 4180, section 3).
const MediaType = "text/csv; charset=utf-8; header=present"

// Columns are the columns of a list of values of T.
type Columns[T any] struct {
	fields []field
	header []string
}

// field is a field of a value, or of a value in it.
type field struct {
	// index are the indices of the fields that lead to it.
	index []int
	// optional fields are left out of JSON if they are zero. Their cells are empty then.
	optional bool
}

// NewColumns returns columns with the given names. A name is that of a field in JSON, such as "image", or the names of the fields that lead to
// it, such as "finding.package.name". A field is a text, a number, a truth value, a time, or a list of texts. It panics for any other name:
// the names are part of the program.
func NewColumns[T any](names ...string) Columns[T] {
	c := Columns[T]{header: names}
	for _, name := range names {
		f, err := fieldOf(reflect.TypeFor[T](), name)
		if err != nil {
			panic(fmt.Sprintf("column %s of %s: %v", name, reflect.TypeFor[T](), err))
		}
		c.fields = append(c.fields, f)
	}
	return c
}

var (
	timeType = reflect.TypeFor[time.Time]()
	kinds    = []reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64}
)

func fieldOf(of reflect.Type, name string) (f field, err error) {
	for part := range strings.SplitSeq(name, ".") {
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return field{}, fmt.Errorf("%s has no fields", of)
		}
		i, isOptional := findField(of, part)
		if i < 0 {
			return field{}, fmt.Errorf("%s has no field %q", of, part)
		}
		f.index, f.optional, of = append(f.index, i), isOptional, of.Field(i).Type
	}
	isList := of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.String
	if of != timeType && !isList && !slices.Contains(kinds, of.Kind()) {
		return field{}, fmt.Errorf("a cell cannot hold %s", of)
	}
	return f, nil
}

// findField returns the index of the field with a name in JSON, -1 if there is none, and whether JSON leaves it out if it is zero.
func findField(of reflect.Type, name string) (index int, isOptional bool) {
	for i := range of.NumField() {
		if found, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); found == name && name != "" {
			return i, strings.Contains(options, "omit")
		}
	}
	return -1, false
}

// cell returns the text of a field of a value. It is that of JSON, without quotes. The texts of a list are separated by commas. isText means that
// others may have chosen it.
func (f field) cell(of reflect.Value) (text string, isText bool) {
	for _, i := range f.index {
		if of.Kind() == reflect.Pointer {
			if of.IsNil() {
				return "", false
			}
			of = of.Elem()
		}
		of = of.Field(i)
	}
	if f.optional && of.IsZero() {
		return "", false
	}
	switch {
	case of.Type() == timeType:
		return of.Interface().(time.Time).UTC().Format(time.RFC3339Nano), false
	case of.Kind() == reflect.String:
		return strings.ToValidUTF8(of.String(), "\uFFFD"), true
	case of.Kind() == reflect.Bool:
		return strconv.FormatBool(of.Bool()), false
	case of.CanInt():
		return strconv.FormatInt(of.Int(), 10), false
	case of.CanFloat():
		return strconv.FormatFloat(of.Float(), 'f', -1, 64), false
	}
	texts := make([]string, of.Len())
	for i := range texts {
		texts[i] = strings.ToValidUTF8(of.Index(i).String(), "\uFFFD")
	}
	return strings.Join(texts, ", "), true
}

// bufferBytes is how much of the rows is written at once.
const bufferBytes = 64 << 10

// Writer writes the rows of a list as CSV. Lines end with CR LF, also those within a text.
type Writer[T any] struct {
	columns Columns[T]
	raw     bool
	to      *csv.Writer
	line    []string
}

// NewWriter returns a writer to w, which has written nothing yet. With raw, texts are as they are, and a spreadsheet may take them for formulas.
func NewWriter[T any](w io.Writer, columns Columns[T], raw bool) *Writer[T] {
	to := csv.NewWriter(bufio.NewWriterSize(w, bufferBytes))
	to.UseCRLF = true
	return &Writer[T]{columns: columns, raw: raw, to: to, line: make([]string, len(columns.fields))}
}

// WriteHeader writes the names of the columns as the first line.
func (w *Writer[T]) WriteHeader() error {
	_ = w.to.Write(w.columns.header) // Flush has the error
	return w.Flush()
}

// Write writes a row for each value. Flush completes it.
func (w *Writer[T]) Write(values []T) error {
	for i := range values {
		value := reflect.ValueOf(&values[i]).Elem()
		for column, f := range w.columns.fields {
			text, isText := f.cell(value)
			if isText && !w.raw {
				text = Text(text)
			}
			w.line[column] = text
		}
		if err := w.to.Write(w.line); err != nil {
			return err
		}
	}
	return nil
}

// Flush writes what is not written yet. It returns the first error of any write.
func (w *Writer[T]) Flush() error {
	w.to.Flush()
	return w.to.Error()
}
