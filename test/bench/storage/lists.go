package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// listTimes is how long one kind of list took, and how long its p95 may take.
type listTimes struct {
	what string
	took []time.Duration
	most time.Duration
}

// listed is how often each list is read.
const listed = 100

// queryLists reads what the first pages of a user interface show, for all namespaces, for a quarter of them and for one.
func queryLists(ctx context.Context, in Database, db *store.Store) (all []listTimes, err error) {
	fixable := true
	urgent := store.VulnerabilityFilter{Severities: []finding.Severity{finding.Critical, finding.High}, Fixable: &fixable}
	for _, by := range []struct {
		who  string
		seen func(i int) store.Sight
	}{
		{"all namespaces", func(int) store.Sight { return store.Sight{All: true} }},
		{"25 namespaces", func(i int) store.Sight { return store.Sight{Namespaces: teams(i, namespaces/4)} }},
		{"one namespace", func(i int) store.Sight { return store.Sight{Namespaces: teams(i, 1)} }},
	} {
		for _, list := range []struct {
			what string
			most time.Duration
			read func(seen store.Sight) (rows int, err error)
		}{
			{"\"which vulnerabilities?\": how many, and the first 100", in.vulnerabilities, func(seen store.Sight) (int, error) {
				answer, err := db.VulnerabilitiesPage(ctx, seen, store.VulnerabilityFilter{}, store.VulnerabilityCursor{}, pageSize)
				return len(answer.Vulnerabilities), err
			}},
			{"the same, Critical or High with a fix", in.vulnerabilities, func(seen store.Sight) (int, error) {
				answer, err := db.VulnerabilitiesPage(ctx, seen, urgent, store.VulnerabilityCursor{}, pageSize)
				return len(answer.Vulnerabilities), err
			}},
			{"\"what is to do?\": the updates of the 20 most urgent repositories", in.overview, func(seen store.Sight) (int, error) {
				answer, err := db.ActionsPage(ctx, store.ActionsQuery{Seen: seen}, store.ActionCursor{}, 20)
				return len(answer.Repositories), err
			}},
			{"\"which workloads?\": how many, and the first 50 with their counts", in.vulnerabilities, func(seen store.Sight) (int, error) {
				answer, err := db.WorkloadsPage(ctx, store.WorkloadsQuery{Seen: seen}, store.WorkloadCursor{}, 50)
				return len(answer.Workloads), err
			}},
		} {
			times := listTimes{what: list.what + ", in " + by.who, most: list.most}
			for i := range listed {
				began := time.Now()
				rows, err := list.read(by.seen(i))
				if err != nil {
					return nil, err
				}
				if rows == 0 {
					return nil, fmt.Errorf("%s: the list is empty", times.what)
				}
				times.took = append(times.took, time.Since(began))
			}
			all = append(all, times)
		}
	}
	return all, nil
}

// teams returns the names of some namespaces, beginning with one.
func teams(begin, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("team-%02d", (begin+i)%namespaces))
	}
	return names
}
