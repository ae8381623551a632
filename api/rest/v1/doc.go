// Package restv1 is the read-only REST API: its OpenAPI document, and what is generated from it: models, the server's
// interface and a client. docs/rest-api.md explains it to users.
//
// The document comes first. What it says of parameters (bounds, patterns, allowed values) is what the server enforces.
package restv1

import _ "embed" // the document

// Document is the OpenAPI document, as the server serves it.
//
//go:embed openapi.yaml
var Document []byte
