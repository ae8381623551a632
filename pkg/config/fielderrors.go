package config

import (
	"fmt"
	"net/url"
)

// fieldErrors has an error for each invalid field, which begins with the field's path.
type fieldErrors []error

// add adds an error about a field.
func (e *fieldErrors) add(field, problem string, args ...any) {
	*e = append(*e, fmt.Errorf("%s: %s", field, fmt.Sprintf(problem, args...)))
}

// check adds an error unless ok is true.
func (e *fieldErrors) check(ok bool, field, problem string, args ...any) {
	if !ok {
		e.add(field, problem, args...)
	}
}

// checkRange requires a number between least and most.
func (e *fieldErrors) checkRange(field string, value, least, most int) {
	e.check(value >= least && value <= most, field, "must be between %d and %d", least, most)
}

// checkURL requires an HTTP URL without credentials. The error does not quote the text, which may hold credentials.
func (e *fieldErrors) checkURL(field, text string) {
	switch parsed, err := url.Parse(text); {
	case err != nil || parsed.Host == "":
		e.add(field, "not a URL with scheme and host")
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		e.add(field, "must begin with https:// or http://")
	case parsed.User != nil:
		e.add(field, "must not hold credentials")
	}
}

// checkCABundle requires a bundle to be empty or to hold only certificates.
func (e *fieldErrors) checkCABundle(field, bundle string) {
	if _, err := extractCertificates(bundle); err != nil {
		e.add(field, "%v", err)
	}
}
