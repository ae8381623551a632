package store

import (
	"context"
	"os"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// What the contract needs of the store besides what is exported.

// AddressOf returns how errors of the store name its database.
func AddressOf(s *Store) string { return s.path }

// SizeOf returns the bytes of the database's files.
func SizeOf(ctx context.Context, s *Store) (size int64, err error) {
	if s.dialect == dialect.MySQL {
		return tablespaceSize(ctx, s)
	}
	if statement := databaseSize[s.dialect]; statement != "" {
		return size, s.queryRow(ctx, "measure the database", statement).Scan(&size)
	}
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(s.path + suffix)
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// tablespaceSize returns the bytes of the files of MySQL's tables. The statistics of databaseSize are estimates that can be old. Tests use databases one
// after the other, so tables without rows are rebuilt: their files have the size of what they once held.
func tablespaceSize(ctx context.Context, s *Store) (size int64, err error) {
	const tables = ` FROM information_schema.innodb_sys_tablespaces WHERE name LIKE concat(database(), '/%')`
	large, err := collect(ctx, &session{conn: s.writer, dialect: s.dialect}, `SELECT substr(name, length(database()) + 2)`+tables+` AND file_size > 200000`, nil, scanValue[string])
	if err != nil {
		return 0, err
	}
	for _, table := range large {
		var filled bool
		if err := s.writer.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+table+`)`).Scan(&filled); err != nil {
			return 0, err
		}
		if !filled {
			if _, err := s.writer.ExecContext(ctx, `ALTER TABLE `+table+` FORCE`); err != nil {
				return 0, err
			}
		}
	}
	// InnoDB extends a file by 4 MiB at a time, which data_free has.
	return size, s.writer.QueryRowContext(ctx, `SELECT CAST(sum(file_size) - (
		SELECT sum(data_free) FROM information_schema.tables WHERE table_schema = database()) AS SIGNED)`+tables).Scan(&size)
}

// SessionOf returns the connection on which a test executes statements of its own.
func SessionOf(s *Store) *session { return &session{conn: s.writer, dialect: s.dialect} }

// SaveInSteps makes the store save reports in steps of few rows.
func SaveInSteps(s *Store, rows int64) { s.stepRows = rows }

// Limits are the limits that storetest.Limits repeats.
var Limits = map[string]int64{
	"chunkBytes": chunkBytes, "findingBytes": findingBytes, "fixedFor": int64(fixedFor), "isolatedWait": int64(isolatedWait),
	"keptWithoutRoom": int64(keptWithoutRoom), "maxGoneExternal": maxGoneExternal, "maxGrouped": maxGrouped, "maxLeft": maxLeft, "maxRunText": maxRunText,
	"quarantine": int64(quarantine), "sweepBatch": sweepBatch, "topFindings": topFindings, "unusedFor": int64(unusedFor),
	"vulnerabilityBatch": vulnerabilityBatch,
}
