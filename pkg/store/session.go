package store

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// query reads, in a transaction or with one statement.
type query interface {
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, statement string, args ...any) row
}

// row is the first row of a result. Scan returns sql.ErrNoRows if there is none.
type row interface{ Scan(into ...any) error }

// session runs statements of the store in the dialect of its database: each on its own, or all in one transaction.
type session struct {
	conn interface {
		ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
	}
	dialect *dialect.Dialect
	// again means that an earlier run of the transaction was rolled back.
	again bool
	// observe gets the text of each statement; nil outside of tests.
	observe func(statement string)
}

// ExecContext runs a statement that returns no rows.
func (s *session) ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	text, args, err := s.expand(statement, args)
	if err != nil {
		return nil, err
	}
	return s.conn.ExecContext(ctx, text, args...)
}

// QueryContext implements query.
func (s *session) QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	text, args, err := s.expand(statement, args)
	if err != nil {
		return nil, err
	}
	return s.conn.QueryContext(ctx, text, args...)
}

// QueryRowContext implements query.
func (s *session) QueryRowContext(ctx context.Context, statement string, args ...any) row {
	text, args, err := s.expand(statement, args)
	if err != nil {
		return failedRow{err}
	}
	return s.conn.QueryRowContext(ctx, text, args...)
}

// insert runs a statement that inserts one row, and returns the row's ID.
func (s *session) insert(ctx context.Context, statement string, args ...any) (id int64, err error) {
	if s.dialect.ReturnsID {
		err = s.QueryRowContext(ctx, statement+` RETURNING id`, args...).Scan(&id)
		return id, err
	}
	result, err := s.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (s *session) expand(statement string, args []any) (text string, ordered []any, err error) {
	expanded, err := s.dialect.Expand(statement)
	if err != nil {
		return "", nil, err
	}
	if s.observe != nil {
		s.observe(statement)
	}
	ordered, err = expanded.Args(cleanArgs(args))
	return expanded.Text, ordered, err
}

// failedRow is the row of a statement that could not be run.
type failedRow struct{ err error }

// Scan implements row.
func (r failedRow) Scan(...any) error { return r.err }

// Bounds of the JSON parameter of one statement. max_allowed_packet of MySQL is 16 MiB or more by default.
const (
	maxRows     = 1000
	maxRowsText = 4 << 20
)

// execRows runs a statement with rows as its parameter @rows, for the macro records: at most maxRows at a time, and not at all without rows.
func (s *session) execRows(ctx context.Context, statement string, rows [][]any, args ...any) error {
	for len(rows) > 0 {
		text, taken, err := jsonRows(rows)
		if err != nil {
			return err
		}
		if _, err := s.ExecContext(ctx, statement, append(slices.Clone(args), sql.Named("rows", text))...); err != nil {
			return err
		}
		rows = rows[taken:]
	}
	return nil
}

// execIDs runs a statement with row IDs as its parameter @ids, in the same way.
func (s *session) execIDs(ctx context.Context, statement string, ids []int64, args ...any) error {
	for page := range slices.Chunk(ids, maxRows) {
		if _, err := s.ExecContext(ctx, statement, append(slices.Clone(args), sql.Named("ids", jsonArray(page)))...); err != nil {
			return err
		}
	}
	return nil
}

// jsonRows returns the first rows as a JSON list of lists, and their number: at least one, and as many as the bounds allow. Bytes become
// hexadecimal digits, and truth values 0 and 1.
func jsonRows(rows [][]any) (text string, taken int, err error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	separator := byte('[')
	for taken < len(rows) && taken < maxRows && out.Len() < maxRowsText {
		values := make([]any, len(rows[taken]))
		for i, value := range rows[taken] {
			if values[i], err = jsonValue(value); err != nil {
				return "", 0, err
			}
		}
		out.WriteByte(separator)
		separator = ','
		if err := encoder.Encode(values); err != nil {
			return "", 0, err
		}
		taken++
	}
	out.WriteByte(']')
	return out.String(), taken, nil
}

func jsonValue(value any) (any, error) {
	column, err := driver.DefaultParameterConverter.ConvertValue(value)
	switch v := column.(type) {
	case []byte:
		return hex.EncodeToString(v), err
	case bool:
		if v {
			return 1, err
		}
		return 0, err
	}
	return column, err
}

// cleanArgs returns the arguments with texts that every database takes. Texts come from pods and images.
func cleanArgs(args []any) []any {
	for i, arg := range args {
		switch value := arg.(type) {
		case string:
			if cleaned := finding.CleanText(value); cleaned != value {
				args = slices.Clone(args)
				args[i] = cleaned
			}
		case sql.NamedArg:
			if text, isText := value.Value.(string); isText && finding.CleanText(text) != text {
				args = slices.Clone(args)
				args[i] = sql.Named(value.Name, finding.CleanText(text))
			}
		}
	}
	return args
}
