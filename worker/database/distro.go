package database

import (
	"cmp"
	"errors"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/vulnerability"
)

// GetOperatingSystemEOL implements vulnerability.EOLChecker. Both times are nil if the database does not know them.
func (l *Lookups) GetOperatingSystemEOL(d *distro.Distro) (securityEnd, activeEnd *time.Time, err error) {
	return l.Provider.(vulnerability.EOLChecker).GetOperatingSystemEOL(d)
}

// GetOperatingSystemEOL implements vulnerability.EOLChecker. Debian's releases have one record for all their point releases, which are all that some
// package URLs name, as in debian-12.5. Grype looks for the record of exactly this version.
func (p *strictProvider) GetOperatingSystemEOL(d *distro.Distro) (securityEnd, activeEnd *time.Time, err error) {
	checker, ok := p.Provider.(vulnerability.EOLChecker)
	if !ok || d == nil {
		return nil, nil, nil
	}
	securityEnd, activeEnd, err = checker.GetOperatingSystemEOL(d)
	if err != nil || securityEnd != nil || d.MinorVersion() == "" {
		return securityEnd, activeEnd, err
	}
	return checker.GetOperatingSystemEOL(distro.New(d.Type, d.MajorVersion(), ""))
}

// SecurityEnd returns the day from which a distribution gets no security updates: that of the database or, if the database has none, that of
// os-release; nil if both have none.
func (l *Lookups) SecurityEnd(d *distro.Distro) (*time.Time, error) {
	end, _, err := l.GetOperatingSystemEOL(d)
	return cmp.Or(end, d.SupportEnd), err
}

// HasDistro reports whether the database has data about a distribution, by the rules of a search for its packages: under another name (as of
// CentOS), for its major version, or for one of its channels.
func (l *Lookups) HasDistro(d *distro.Distro) (bool, error) {
	spec := v6.OSSpecifier{
		Name: d.Name(), MajorVersion: d.MajorVersion(), MinorVersion: d.MinorVersion(), RemainingVersion: d.RemainingVersion(), LabelVersion: d.LabelVersion(),
	}
	for _, channel := range append([]string{""}, d.Channels...) {
		spec.Channel = channel
		found, err := l.db.systems.GetOperatingSystems(spec)
		if errors.Is(err, v6.ErrMissingOSIdentification) {
			return false, nil
		}
		if err != nil || len(found) > 0 {
			return len(found) > 0, err
		}
	}
	return false, nil
}
