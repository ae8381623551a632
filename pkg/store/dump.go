package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// A dump has the whole content of a store as text, in the same form for each database. Each line is a JSON value that ends with a line
// end:
//
//   - the header, which is a DumpInfo;
//   - for each table, in an order in which tables can be loaded, the table's name and its columns, followed by its rows, each as a list,
//     in the order of the table's key;
//   - the trailer: the number of rows, and the SHA-256 of all lines before.
//
// Integers, numbers and texts are JSON's, bytes are base64, an unknown value is null. Texts compare bytewise and have neither NUL nor
// invalid UTF-8. So stores with the same content have the same dump, except for the header's Operator.
const (
	dumpFormat = "scanner-operator-dump"
	// dumpVersion is the version of this layout. The version of the content is DumpInfo.Schema.
	dumpVersion = 1
	// maxDumpLine bounds a line, in bytes. The largest values are chunks of artifacts, and states of receivers.
	maxDumpLine = 64 << 20
)

// DumpInfo is the header line of a dump.
type DumpInfo struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Schema is the version of the store's schema. Only a program with this version can load the dump.
	Schema int64 `json:"schema"`
	// Store is the ID of the store. A store that is loaded from the dump has the same ID.
	Store string `json:"store"`
	// Operator is the version of the operator that made the dump.
	Operator string `json:"operator"`
}

// dumpTable is the line before a table's rows.
type dumpTable struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
}

// dumpTrailer is the last line of a dump.
type dumpTrailer struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// TableProgress is called after each table of a dump that was written or loaded.
type TableProgress func(table string, rows int64)

// Dump writes the whole store as text, which Load reads into a store in any database. It reads one consistent snapshot and does not block
// writers. Its memory is bounded by a few rows. operator is the version of the operator.
func (s *Store) Dump(ctx context.Context, operator string, out io.Writer, progress TableProgress) (info DumpInfo, err error) {
	tables, err := schemaTables(ctx)
	if err != nil {
		return info, err
	}
	err = s.read(ctx, "dump", func(ctx context.Context, q query) error {
		info = DumpInfo{Format: dumpFormat, Version: dumpVersion, Operator: operator}
		err := q.QueryRowContext(ctx, `SELECT m.value, (SELECT max(version_id) FROM `+goose.DefaultTablename+`) FROM meta m WHERE m.name = 'id'`).
			Scan(&info.Store, &info.Schema)
		if err != nil {
			return err
		}
		if latest := latestSchema(); info.Schema != latest {
			return fmt.Errorf("the store has schema %d and this program knows %d: use the program of the manager's version", info.Schema, latest)
		}
		return writeDump(ctx, q, info, tables, newDumpWriter(out), progress)
	})
	return info, err
}

func writeDump(ctx context.Context, q query, info DumpInfo, tables []table, out *dumpWriter, progress TableProgress) error {
	if err := out.write(info); err != nil {
		return err
	}
	var total int64
	for _, t := range tables {
		if err := out.write(dumpTable{t.name, t.columnNames()}); err != nil {
			return err
		}
		rows, err := writeTable(ctx, q, t, out)
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		total += rows
		if progress != nil {
			progress(t.name, rows)
		}
	}
	if err := out.write(dumpTrailer{total, hex.EncodeToString(out.sum.Sum(nil))}); err != nil {
		return err
	}
	return out.buffer.Flush()
}

func writeTable(ctx context.Context, q query, t table, out *dumpWriter) (count int64, err error) {
	values, into := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range values {
		into[i] = &values[i]
	}
	statement := `SELECT ` + quoted(t.columnNames()) + ` FROM ` + t.name + ` ORDER BY ` + quoted(t.key)
	err = eachRow(ctx, q, statement, nil, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, c := range t.columns {
			if values[i], err = c.dumped(values[i]); err != nil {
				return err
			}
		}
		count++
		return out.write(values)
	})
	return count, err
}

// dumped returns a column's value as a dump has it. SQLite does not enforce the type of a column, and some drivers return texts as bytes,
// or no bytes as nil.
func (c tableColumn) dumped(value any) (any, error) {
	switch v := value.(type) {
	case nil:
		if c.kind == "bytes" && c.required {
			return []byte{}, nil
		}
		return nil, nil
	case int64:
		if c.kind == "bigint" {
			return v, nil
		}
	case float64:
		if c.kind == "double" {
			return v, nil
		}
	case string:
		return c.dumped([]byte(v))
	case []byte:
		switch {
		case c.kind == "text":
			return finding.CleanText(string(v)), nil
		case c.kind == "bytes" && len(v) == 0:
			return c.dumped(nil)
		case c.kind == "bytes":
			return v, nil
		}
	}
	return nil, fmt.Errorf("column %s, which is %s, holds a value of type %T", c.name, c.kind, value)
}

// dumpWriter writes lines, and computes the SHA-256 of all that it wrote.
type dumpWriter struct {
	buffer  *bufio.Writer
	sum     hash.Hash
	line    bytes.Buffer
	encoder *json.Encoder
}

func newDumpWriter(out io.Writer) *dumpWriter {
	w := &dumpWriter{buffer: bufio.NewWriterSize(out, 1<<20), sum: sha256.New()}
	w.encoder = json.NewEncoder(&w.line)
	w.encoder.SetEscapeHTML(false)
	return w
}

func (w *dumpWriter) write(value any) error {
	w.line.Reset()
	if err := w.encoder.Encode(value); err != nil {
		return err
	}
	if w.line.Len() > maxDumpLine {
		return fmt.Errorf("a row has %d bytes, and a line of a dump at most %d", w.line.Len(), maxDumpLine)
	}
	_, _ = w.sum.Write(w.line.Bytes()) // a hash never fails
	_, err := w.buffer.Write(w.line.Bytes())
	return err
}

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

// errAt wraps ErrDumpDamaged with the number of a line.
func errAt(line int64, problem string, args ...any) error {
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
			return errAt(r.number, "more than %d bytes", maxDumpLine)
		case errors.Is(err, io.EOF) && len(r.line) > 0:
			return errAt(r.number, "cut off")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// expect reads a line that must be there.
func (r *dumpReader) expect() error {
	err := r.next()
	if errors.Is(err, io.EOF) {
		return errAt(r.number, "missing")
	}
	return err
}

// decode decodes the line into a struct that must have all its fields.
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

// table reads the line before a table's rows, and then the first row. It returns false if the table has no row.
func (r *dumpReader) table(t table) error {
	var found dumpTable
	if r.decode(&found) != nil || found.Table != t.name || strings.Join(found.Columns, " ") != strings.Join(t.columnNames(), " ") {
		return errAt(r.number, "want table %s with the columns %s", t.name, strings.Join(t.columnNames(), ", "))
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
		return nil, true, errAt(r.number, "not a row of table %s", t.name)
	}
	values = make([]any, len(encoded))
	for i, c := range t.columns {
		if values[i], err = c.loaded(encoded[i]); err != nil {
			return nil, true, errAt(r.number, "column %s of table %s is not %s", c.name, t.name, c.kind)
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
		return errAt(r.number, "want the number of rows and the checksum")
	case found != want:
		return fmt.Errorf("%w (%d rows with the checksum %s where %d rows with %s were to come)", ErrDumpDamaged, rows, want.SHA256, found.Rows, found.SHA256)
	}
	switch err := r.next(); {
	case err == nil:
		return errAt(r.number, "data after the end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
