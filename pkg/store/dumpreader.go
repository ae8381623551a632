package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Errors of loading a dump. If there is one, nothing was loaded.
var (
	// ErrNoDump means that the data is not a dump.
	ErrNoDump = errors.New("this is no dump of the operator's store")
	// ErrDumpDamaged means that the data differs from what was written.
	ErrDumpDamaged = errors.New("the dump is damaged or not complete: use another one")
	// ErrDumpVersion means that another version of the operator has to load the dump.
	ErrDumpVersion = errors.New("the dump is of another version of the operator")
	// ErrNotEmpty means that the store that a dump should be loaded into has content.
	ErrNotEmpty = errors.New("the store has content")
)

// checkDumpInfo returns an error unless this program can load a dump with this header.
func checkDumpInfo(info DumpInfo) error {
	latest := latestSchema()
	switch {
	case info.Version != dumpVersion:
		return fmt.Errorf("%w (%s, format %d, this one knows %d): load it with that version", ErrDumpVersion, info.Operator, info.Version, dumpVersion)
	case info.Schema < latest:
		return fmt.Errorf("%w (%s, schema %d, this one needs %d): load it with that version, whose store the manager of this version then migrates",
			ErrDumpVersion, info.Operator, info.Schema, latest)
	case info.Schema > latest:
		return fmt.Errorf("%w (%s, schema %d, this one knows %d): load it with that version", ErrDumpVersion, info.Operator, info.Schema, latest)
	}
	return nil
}

// damagedAt returns ErrDumpDamaged with the number of a line and its problem.
func damagedAt(line int64, problem string, args ...any) error {
	return fmt.Errorf("%w (line %d: %s)", ErrDumpDamaged, line, fmt.Sprintf(problem, args...))
}

// dumpReader reads lines. It computes the SHA-256 of all lines but the last.
type dumpReader struct {
	in  *bufio.Reader
	sum hash.Hash
	// number is that of line, counted from 1. line is valid until the next call of next.
	number int64
	line   []byte
}

func newDumpReader(in io.Reader) *dumpReader {
	return &dumpReader{in: bufio.NewReaderSize(in, 1<<20), sum: sha256.New()}
}

// next reads a line. At the end of the data it returns io.EOF.
func (r *dumpReader) next() error {
	_, _ = r.sum.Write(r.line) // a hash never fails
	r.line = r.line[:0]
	r.number++
	for {
		part, err := r.in.ReadSlice('\n')
		r.line = append(r.line, part...)
		switch {
		case err == nil && len(r.line) <= maxDumpLine:
			return nil
		case len(r.line) > maxDumpLine:
			return damagedAt(r.number, "more than %d bytes", maxDumpLine)
		case errors.Is(err, io.EOF) && len(r.line) > 0:
			return damagedAt(r.number, "cut off")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// expect reads a line that must be there.
func (r *dumpReader) expect() error {
	err := r.next()
	if errors.Is(err, io.EOF) {
		return damagedAt(r.number, "missing")
	}
	return err
}

// decode decodes the line into a struct that has all fields of the line.
func (r *dumpReader) decode(into any) error {
	decoder := json.NewDecoder(bytes.NewReader(r.line))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// header reads the first line.
func (r *dumpReader) header() (info DumpInfo, err error) {
	if err := r.next(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrDumpDamaged) {
		return info, err
	}
	if json.Unmarshal(r.line, &info) != nil || info.Format != dumpFormat {
		return info, fmt.Errorf("%w: it does not begin as one", ErrNoDump)
	}
	return info, checkDumpInfo(info)
}

// table checks that the line is the one before a table's rows.
func (r *dumpReader) table(t table) error {
	var found dumpTable
	if r.decode(&found) != nil || found.Table != t.name || strings.Join(found.Columns, " ") != strings.Join(t.columnNames(), " ") {
		return damagedAt(r.number, "want table %s with the columns %s", t.name, strings.Join(t.columnNames(), ", "))
	}
	return nil
}

// row returns the values of the line; false if it is not a row.
func (r *dumpReader) row(t table) (values []any, isRow bool, err error) {
	if !bytes.HasPrefix(r.line, []byte{'['}) {
		return nil, false, nil
	}
	var encoded []json.RawMessage
	if err := json.Unmarshal(r.line, &encoded); err != nil || len(encoded) != len(t.columns) {
		return nil, true, damagedAt(r.number, "not a row of table %s", t.name)
	}
	values = make([]any, len(encoded))
	for i, c := range t.columns {
		if values[i], err = c.loaded(encoded[i]); err != nil {
			return nil, true, damagedAt(r.number, "column %s of table %s is not %s", c.name, t.name, c.kind)
		}
	}
	return values, true, nil
}

// loaded returns a column's value from its form in a dump.
func (c tableColumn) loaded(encoded json.RawMessage) (any, error) {
	if string(encoded) == "null" && !c.required {
		return nil, nil
	}
	switch c.kind {
	case "bigint":
		return decodeValue[int64](encoded)
	case "double":
		return decodeValue[float64](encoded)
	case "bytes":
		return decodeValue[[]byte](encoded)
	}
	text, err := decodeValue[string](encoded)
	if finding.CleanText(text) != text {
		return nil, errors.New("NUL")
	}
	return text, err
}

func decodeValue[T any](encoded json.RawMessage) (value T, err error) {
	if string(encoded) == "null" {
		return value, errors.New("null")
	}
	err = json.Unmarshal(encoded, &value)
	return value, err
}

// trailer checks the line as the last one of a dump with these many rows.
func (r *dumpReader) trailer(rows int64) error {
	want := dumpTrailer{rows, hex.EncodeToString(r.sum.Sum(nil))}
	var found dumpTrailer
	switch {
	case r.decode(&found) != nil:
		return damagedAt(r.number, "want the number of rows and the checksum")
	case found != want:
		return fmt.Errorf("%w (%d rows with the checksum %s where %d rows with %s were to come)", ErrDumpDamaged, rows, want.SHA256, found.Rows, found.SHA256)
	}
	switch err := r.next(); {
	case err == nil:
		return damagedAt(r.number, "data after the end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
