package storetest

import "time"

// Limits of the store, to which the tests go.
const (
	chunkBytes         = 256 << 10
	findingBytes       = 320
	fixedFor           = 180 * 24 * time.Hour
	isolatedWait       = 5 * time.Minute
	keptWithoutRoom    = 24 * time.Hour
	maxGoneExternal    = 10_000
	maxGrouped         = 1000
	maxLeft            = 250
	maxRunText         = 512
	quarantine         = 14 * 24 * time.Hour
	sweepBatch         = 10
	topFindings        = 5
	unusedFor          = 180 * 24 * time.Hour
	vulnerabilityBatch = 2000
)

// Limits are the limits by their names in the store, which compares them with its own.
var Limits = map[string]int64{
	"chunkBytes": chunkBytes, "findingBytes": findingBytes, "fixedFor": int64(fixedFor), "isolatedWait": int64(isolatedWait),
	"keptWithoutRoom": int64(keptWithoutRoom), "maxGoneExternal": maxGoneExternal, "maxGrouped": maxGrouped, "maxLeft": maxLeft, "maxRunText": maxRunText,
	"quarantine": int64(quarantine), "sweepBatch": sweepBatch, "topFindings": topFindings, "unusedFor": int64(unusedFor),
	"vulnerabilityBatch": vulnerabilityBatch,
}
