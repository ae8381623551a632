// Package chart tests charts/scanner-operator by what Helm makes of it: that it installs what config/default installs, that
// each value does what its comment says, and that wrong values are refused by name.
package chart
