// Package chart tests charts/scanner-operator by rendering it with Helm: it installs the same objects as config/default, each value has
// the documented effect, and invalid values are rejected with an error that names them.
package chart
