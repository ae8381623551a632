// Package crd has the definitions of the operator's kinds, as this version needs them.
package crd

import "embed"

// Files are the definitions, in the directory bases.
//
//go:embed bases/*.yaml
var Files embed.FS
