// Package ossfuzz contains the files by which OSS-Fuzz (https://google.github.io/oss-fuzz) builds and runs the fuzz targets, as they are to be in
// projects/scanner-operator of its repository. It has no Go code of its own. Its tests check that no fuzz target is forgotten.
package ossfuzz
