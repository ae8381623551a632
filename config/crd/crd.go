// Package crd embeds the CustomResourceDefinitions that this version of the operator needs.
package crd

import "embed"

// Files holds the CustomResourceDefinitions, in the directory bases.
//
//go:embed bases/*.yaml
var Files embed.FS
