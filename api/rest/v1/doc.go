// Package restv1 is the REST API: its OpenAPI document, and the types and the server's interface that are generated from it.
// Package restclient, in the folder client, is the client. docs/integrate/rest-api.md describes the API for users.
//
// The document is written first. The server enforces what it defines for parameters: bounds, patterns and allowed values.
package restv1

import _ "embed" // for Document

// Document is the OpenAPI document, as the server serves it.
//
//go:embed openapi.yaml
var Document []byte
