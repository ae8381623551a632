package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// anyOf reports whether an error is one of those that readers know how to explain.
func anyOf(err error, known ...error) bool {
	return slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) })
}

// FuzzBackup: of a backup, exactly the pages of the store are restored. A backup with one changed byte, like any other content, is refused with an error
// that names the cause, and no more is written than its first line announces.
func FuzzBackup(f *testing.F) {
	const pageSize = 512
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxBackupWindow))
	if err != nil {
		f.Fatal(err)
	}
	backupOf := func(pages []byte) []byte {
		header, err := json.Marshal(BackupInfo{
			Format: backupFormat, Version: backupVersion, Schema: latestSchema(), Store: "s", Operator: "1.2.3", Pages: int64(len(pages) / pageSize), PageSize: pageSize,
		})
		if err != nil {
			f.Fatal(err)
		}
		header = append(header, '\n')
		sum := sha256.Sum256(slices.Concat(header, pages))
		return slices.Concat(header, encoder.EncodeAll(slices.Concat(pages, sum[:]), nil))
	}
	whole := backupOf(make([]byte, pageSize))
	f.Add([]byte("content"), uint16(7), whole)
	f.Add(bytes.Repeat([]byte("page"), pageSize), uint16(300), whole[:len(whole)-3])
	f.Add([]byte{}, uint16(0), append(slices.Clone(whole), "more"...))
	f.Add([]byte{1}, uint16(180), bytes.Replace(whole, []byte(`"pages":1,`), []byte(`"pages":4294967296,`), 1))
	f.Add([]byte{1}, uint16(1), bytes.Replace(whole, []byte(`"version":1,`), []byte(`"version":2,`), 1))
	f.Add([]byte{1}, uint16(1), []byte("SQLite format 3\x00"))
	f.Fuzz(func(t *testing.T, content []byte, position uint16, foreign []byte) {
		var info BackupInfo
		read := func(backup []byte) (restored []byte, err error) {
			var out bytes.Buffer
			info, err = readBackup(bytes.NewReader(backup), func(BackupInfo) error { return nil }, &limitedWriter{to: &out, left: 8 << 20})
			return out.Bytes(), err
		}
		pages := append(slices.Clone(content), make([]byte, pageSize-len(content)%pageSize)...)
		backup := backupOf(pages)
		if restored, err := read(backup); err != nil || !bytes.Equal(restored, pages) {
			t.Errorf("of %d pages, %d bytes are restored, %v", len(pages)/pageSize, len(restored), err)
		}
		at := int(position) % len(backup)
		backup[at] ^= 1
		switch restored, err := read(backup); {
		case err == nil && !bytes.Equal(restored, pages):
			t.Errorf("with byte %d changed, %d other bytes are restored", at, len(restored))
		case err != nil && !anyOf(err, ErrNoBackup, ErrBackupDamaged, ErrBackupNewer):
			t.Errorf("with byte %d changed: %v", at, err)
		}
		restored, err := read(foreign)
		if int64(len(restored)) > max(info.size(), 0) || err == nil && int64(len(restored)) != info.size() {
			t.Errorf("%d bytes are restored, %v; the backup has %d pages of %d bytes", len(restored), err, info.Pages, info.PageSize)
		}
		if err != nil && !anyOf(err, ErrNoBackup, ErrBackupDamaged, ErrBackupNewer, errNoRoom) {
			t.Errorf("%q: %v", foreign, err)
		}
	})
}

var errNoRoom = errors.New("no room left")

// limitedWriter is a disk that is full after some bytes.
type limitedWriter struct {
	to   io.Writer
	left int
}

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errNoRoom
	}
	return w.to.Write(p)
}

// fuzzedTable has a column of each kind, with and without NOT NULL.
var fuzzedTable = table{name: "t", key: []string{"a"}, columns: []tableColumn{
	{name: "a", kind: "text", required: true}, {name: "b", kind: "text"}, {name: "c", kind: "bigint", required: true}, {name: "d", kind: "double"},
	{name: "e", kind: "bytes", required: true}, {name: "f", kind: "bytes"},
}}

// FuzzDump: rows that are loaded from a dump have one canonical form, in which they are dumped again. A dump with one changed byte, or with lines that are
// no rows, is refused with an error that names the cause.
func FuzzDump(f *testing.F) {
	for _, rows := range []string{
		"", `["a","b",1,1.5,"AQI=","AQI="]` + "\n", `["",null,-9223372036854775808,null,"",""]` + "\n" + `["\u0001 ü",null,0,-0,[1,2],null]` + "\n", `[1,2]` + "\n", `["a\u0000","b",1,1,"",""]` + "\n",
		`["a","b",1,1e999,"",""]` + "\n", `["a",null,1,null,"",null] ` + "\n", "[", "\n", `{"rows":0}` + "\n",
	} {
		f.Add([]byte(rows), uint16(len(rows)))
	}
	f.Fuzz(func(t *testing.T, rows []byte, position uint16) {
		dump := fuzzedDump(rows)
		loaded, err := readFuzzedDump(dump)
		if err != nil {
			if !anyOf(err, ErrDumpDamaged) {
				t.Errorf("%q: %v", rows, err)
			}
			return
		}
		canonical := dumpRows(t, loaded)
		again, err := readFuzzedDump(fuzzedDump(canonical))
		if err != nil {
			t.Fatalf("%q is dumped as %q, which is refused: %v", rows, canonical, err)
		}
		if twice := dumpRows(t, again); len(loaded) != len(again) || !bytes.Equal(canonical, twice) {
			t.Errorf("%q is dumped as %q, and that as %q", rows, canonical, twice)
		}
		// The trailer is only compared with what comes before, so its own form does not matter.
		at := int(position) % bytes.LastIndexByte(dump[:len(dump)-1], '\n')
		dump[at] ^= 1
		if _, err := readFuzzedDump(dump); !anyOf(err, ErrNoDump, ErrDumpDamaged, ErrDumpVersion) {
			t.Errorf("%q with byte %d changed: %v", dump, at, err)
		}
	})
}

// fuzzedDump returns a dump of fuzzedTable with these rows.
func fuzzedDump(rows []byte) []byte {
	body := fmt.Appendf(nil, "{\"format\":%q,\"version\":%d,\"schema\":%d}\n{\"table\":%q,\"columns\":[%s]}\n%s", dumpFormat, dumpVersion, latestSchema(), fuzzedTable.name,
		`"`+strings.Join(fuzzedTable.columnNames(), `","`)+`"`, rows)
	return fmt.Appendf(body, "{\"rows\":%d,\"sha256\":\"%x\"}\n", bytes.Count(body, []byte("\n"))-2, sha256.Sum256(body))
}

// readFuzzedDump reads a dump of fuzzedTable, as a loader does.
func readFuzzedDump(dump []byte) (rows [][]any, err error) {
	r := newDumpReader(bytes.NewReader(dump))
	if _, err := r.header(); err != nil {
		return nil, err
	}
	if err := r.expect(); err != nil {
		return nil, err
	}
	if err := r.table(fuzzedTable); err != nil {
		return nil, err
	}
	for {
		if err := r.expect(); err != nil {
			return nil, err
		}
		values, isRow, err := r.row(fuzzedTable)
		if err != nil {
			return nil, err
		}
		if !isRow {
			return rows, r.trailer(int64(len(rows)))
		}
		rows = append(rows, values)
	}
}

// dumpRows returns rows of fuzzedTable in the form of a dump.
func dumpRows(t *testing.T, rows [][]any) []byte {
	t.Helper()
	var text bytes.Buffer
	w := newDumpWriter(&text)
	for _, values := range rows {
		dumped := make([]any, len(values))
		for i, c := range fuzzedTable.columns {
			var err error
			if dumped[i], err = c.dumped(values[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.write(dumped); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.buffer.Flush(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}
