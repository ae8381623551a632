package store

// What the contract needs of the store besides what is exported.

// AddressOf returns how errors of the store name its database.
func AddressOf(s *Store) string { return s.path }

// SessionOf returns the connection on which a test executes statements of its own.
func SessionOf(s *Store) *session { return &session{conn: s.writer, dialect: s.dialect} }

// Limits are the limits that storetest.Limits repeats.
var Limits = map[string]int64{
	"chunkBytes": chunkBytes, "findingBytes": findingBytes, "fixedFor": int64(fixedFor), "isolatedWait": int64(isolatedWait),
	"keptWithoutRoom": int64(keptWithoutRoom), "maxGoneExternal": maxGoneExternal, "maxGrouped": maxGrouped, "maxLeft": maxLeft, "maxRunText": maxRunText,
	"quarantine": int64(quarantine), "sweepBatch": sweepBatch, "topFindings": topFindings, "unusedFor": int64(unusedFor),
	"vulnerabilityBatch": vulnerabilityBatch,
}
