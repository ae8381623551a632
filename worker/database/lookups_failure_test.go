package database

import (
	"errors"
	"testing"

	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
)

// failing is a provider whose failures Grype does not report: it returns an incomplete result without an error.
type failing struct {
	vulnerability.Provider
	db    *DB
	fails bool
}

func (f *failing) FindVulnerabilities(...vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	if f.fails {
		f.db.recordFailure(errors.New("the disk has lost a block"))
		return nil, nil
	}
	return []vulnerability.Vulnerability{{PackageName: "openssl"}}, nil
}

func (f *failing) VulnerabilityMetadata(vulnerability.Reference) (*vulnerability.Metadata, error) {
	if f.fails {
		f.db.recordFailure(errors.New("the disk has lost a block"))
		return &vulnerability.Metadata{}, nil
	}
	return &vulnerability.Metadata{Severity: "High"}, nil
}

// TestFailedLookupsAreNotCached checks that a failed lookup is not cached, since it may succeed for the next image.
func TestFailedLookupsAreNotCached(t *testing.T) {
	db := &DB{}
	provider := &failing{db: db, fails: true}
	lookups := newLookups(db, provider)
	lookUp := func() (int, string) {
		found, err := lookups.FindVulnerabilities(search.ByPackageName("openssl"))
		if err != nil {
			t.Fatal(err)
		}
		metadata, err := lookups.VulnerabilityMetadata(vulnerability.Reference{ID: "CVE-2024-0001"})
		if err != nil {
			t.Fatal(err)
		}
		return len(found), metadata.Severity
	}
	if n, severity := lookUp(); n != 0 || severity != "" {
		t.Fatalf("%d vulnerabilities of severity %q of a database that fails", n, severity)
	}
	provider.fails = false
	if n, severity := lookUp(); n != 1 || severity != "High" {
		t.Errorf("%d vulnerabilities of severity %q once it is well, want 1 and High", n, severity)
	}
	provider.fails = true
	if n, severity := lookUp(); n != 1 || severity != "High" || db.Failures() != 2 {
		t.Errorf("%d vulnerabilities of severity %q with %d failures, want what is remembered and 2 failures", n, severity, db.Failures())
	}
}
