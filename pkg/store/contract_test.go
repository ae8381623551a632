package store_test

import (
	"testing"

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
