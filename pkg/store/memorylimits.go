package store

import (
	"context"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// RecordMemoryExceeded records that this many bytes of memory are not enough to catalog an image in a credential scope. The highest
// recorded number counts. Sweep deletes the records of images that no Scanner has.
func (s *Store) RecordMemoryExceeded(ctx context.Context, key image.Key, scope Scope, bytes int64) error {
	return s.exec(ctx, "record the memory for "+key.String(), `
		INSERT INTO memory_exceeded (digest, platform, scope, bytes, noted_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (digest, platform, scope) DO UPDATE SET bytes = greatest(memory_exceeded.bytes, excluded.bytes), noted_at = excluded.noted_at`,
		key.Digest, platform(key.Platform), scope, bytes, millis{s.now()})
}

// MemoryExceeded returns the number that RecordMemoryExceeded recorded; 0 if there is none.
func (s *Store) MemoryExceeded(ctx context.Context, key image.Key, scope Scope) (bytes int64, err error) {
	err = s.queryRow(ctx, "look up the memory for "+key.String(),
		`SELECT coalesce(max(bytes), 0) FROM memory_exceeded WHERE digest = ? AND platform = ? AND scope = ?`,
		key.Digest, platform(key.Platform), scope).Scan(&bytes)
	return bytes, err
}

// sweepMemory deletes the records of images that no Scanner has. An image that is used again later starts with the default
// memory.
func (s *Store) sweepMemory(ctx context.Context, unusedSince time.Time) error {
	return s.exec(ctx, "sweep the memory for images", `
		DELETE FROM memory_exceeded WHERE noted_at < ? AND NOT EXISTS (
			SELECT 1 FROM scanner_images si WHERE si.digest = memory_exceeded.digest
			AND si.platform = memory_exceeded.platform AND si.scope = memory_exceeded.scope)`, millis{unusedSince})
}
