package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// TestContract runs the contract of the store on each database.
func TestContract(t *testing.T) {
	for _, database := range store.Databases {
		t.Run(database.Name, func(t *testing.T) {
			database.New(t) // skips all tests at once if the server is not installed
			storetest.Run(t, func(t testing.TB) storetest.Database {
				return contractDatabase(database.New(t))
			})
		})
	}
}

// TestContractAfterConflicts runs the contract on a database that rolls back the first run of each writing transaction. Nothing of that run is
// left, in the database or in memory.
func TestContractAfterConflicts(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Database { return contractDatabase(store.RerunDatabase(t)) })
}

// TestContractInSteps runs what the contract has of reports on a store that saves nearly each report in steps.
func TestContractInSteps(t *testing.T) {
	open := func(t testing.TB) storetest.Database {
		d := contractDatabase(store.Databases[0].New(t))
		open := d.Open
		d.Open = func(ctx context.Context, now func() time.Time) (*store.Store, error) {
			s, err := open(ctx, now)
			if err == nil {
				store.SaveInSteps(s, 2)
			}
			return s, err
		}
		return d
	}
	storetest.Run(t, open, "LivesAgreeWithAPlainModel", "TheStoreAgreesWithAPlainModel", "VulnerabilitiesAgreeWithModel", "CountsOfLostFindingsAreKept",
		"AnotherIDIsTheSameFinding", "FixedByIndependentData", "SeveritiesBefore", "VulnerabilitiesAreShared", "AReportEndsItsLease", "TheQueueFollowsTheStore",
		"ExternalReports", "OlderExternalReports", "DeleteExternalReport", "ExternalReportsAreWhole", "SweepExternalReports", "WithdrawnReportsTakeNothing", "TextsOfFindingsCount")
}

func contractDatabase(d store.TestDatabase) storetest.Database {
	return storetest.Database{
		Open: d.Open, OpenReadOnly: d.OpenReadOnly, Address: store.AddressOf, Size: store.SizeOf,
		Session: func(s *store.Store) storetest.Session { return store.SessionOf(s) },
	}
}

// TestContractLimits checks that the contract goes to the limits that the store has.
func TestContractLimits(t *testing.T) {
	if diff := cmp.Diff(store.Limits, storetest.Limits); diff != "" {
		t.Errorf("limits of the store, and those in storetest (-store +storetest):\n%s", diff)
	}
}
