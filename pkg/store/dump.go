package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"

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

func selectTable(t table) string {
	return `SELECT ` + quoted(t.columnNames()) + ` FROM ` + t.name + ` ORDER BY ` + quoted(t.key)
}

func writeTable(ctx context.Context, q query, t table, out *dumpWriter) (count int64, err error) {
	values, into := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range values {
		into[i] = &values[i]
	}
	err = eachRow(ctx, q, selectTable(t), nil, func(rows *sql.Rows) error {
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
