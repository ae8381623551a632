// Package restclient is the client of the REST API, generated from the OpenAPI document. Its parameters and responses use the types of
// package restv1. The manager does not import it.
package restclient
