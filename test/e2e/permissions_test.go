package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/scanner-operator/scanner-operator/test/privilege"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

const (
	managerAccount  = "scanner-operator-manager"
	notifierAccount = "scanner-operator-notifier"
)

// watchListReason is the reason why the permission to list a watched resource is rarely used.
const watchListReason = "the API server sends what there is as the beginning of a watch; older ones, and one that is asked for too much, do not"

// ownerReason is the reason why the permission to read workloads of a kind is rarely used.
const ownerReason = "the owner of a Report; the tests run no workload of this kind"

// rarelyUsed are permissions that a run does not use, or not every time.
var rarelyUsed = []privilege.Exception{
	{Account: managerAccount, Verb: "list", Resource: "nodes", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "namespaces", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "pods", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "scanners.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "clusterscanners.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "imagescans.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "vulnerabilityexceptions.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "clustervulnerabilityexceptions.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "list", Resource: "clusterscanners.scanner-operator.io", Why: watchListReason},
	{Account: managerAccount, Verb: "get", Resource: "clusterscanners.scanner-operator.io", Why: "as for Scanners"},
	{Account: managerAccount, Verb: "patch", Resource: "clusterscanners.scanner-operator.io", Why: "the finalizer, with Clair only: the tests with Clair have Scanners"},
	{Account: managerAccount, Verb: "get", Resource: "nodes", Why: "says of a Job's pod that its node is lost"},
	{Account: managerAccount, Verb: "get", Resource: "scanners.scanner-operator.io", Why: "looks whether another operator writes a Scanner's status, and frees Scanners when the manager has gone (manager cleanup)"},
	{Account: managerAccount, Verb: "get", Resource: "clusterscanners.scanner-operator.io", Why: "the same for a ClusterScanner"},
	{Account: managerAccount, Verb: "get", Resource: "namespaces", Why: "asks, when a Job has failed or gone, whether its namespace is being deleted"},
	{Account: managerAccount, Verb: "create", Resource: "persistentvolumeclaims", Why: "the local cluster has no default StorageClass, so there is no claim for vulnerability databases"},
	{Account: managerAccount, Verb: "patch", Resource: "events.events.k8s.io", Why: "an event is counted when it repeats within minutes"},
	{Account: managerAccount, Verb: "update", Resource: "secrets", Why: "certificates are renewed after days"},
	{Account: managerAccount, Verb: "update", Resource: "configmaps", Why: "authorities are replaced after months"},
	{Account: managerAccount, Verb: "delete", Resource: "reports.openreports.io", Why: "of workloads that the API server has not deleted, such as those that no scanner covers any more"},
	{Account: managerAccount, Verb: "get", Resource: "daemonsets.apps", Why: ownerReason},
	{Account: managerAccount, Verb: "get", Resource: "replicasets.apps", Why: ownerReason},
	{Account: managerAccount, Verb: "get", Resource: "cronjobs.batch", Why: ownerReason},
	{Account: managerAccount, Verb: "get", Resource: "jobs.batch", Why: ownerReason},
}

// expected are denied requests whose permissions tests remove, or have not granted yet.
var expected = []privilege.Exception{
	{Account: managerAccount, Verb: "get", Resource: "secrets", Why: "no namespace has to let its pull secrets and Clair's keys be read"},
	{Account: managerAccount, Verb: "get", Resource: "serviceaccounts", Why: "nor its ServiceAccounts, which name pull secrets"},
	{Account: notifierAccount, Verb: "get", Resource: "secrets", Why: "a Scanner may be there before the Role for its webhook's address"},
}

// isCompleteRun reports whether all tests are run, since a selection does not use every permission. E2E_PERMISSIONS=1 forces the comparison.
func isCompleteRun() bool {
	if os.Getenv("E2E_PERMISSIONS") != "" {
		return true
	}
	for _, name := range []string{"test.run", "test.skip"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// checkPermissions compares the permissions of manager and notifier at the end of all tests with those that were used. It is not a test
// because it must run after all tests.
func checkPermissions(ctx context.Context, log privilege.Log) error {
	if !isCompleteRun() {
		return nil
	}
	if !log.IsWritten() {
		fmt.Println("e2e: permissions are not compared with their use: this cluster's API server writes no audit log (SCANNER_AUDIT_LOG)")
		return nil
	}
	uses, err := log.Uses(scenario.SystemNamespace)
	if err != nil {
		return err
	}
	var grants []privilege.Grant
	for _, account := range []string{managerAccount, notifierAccount} {
		of, err := privilege.GrantsOf(ctx, env.Client, scenario.SystemNamespace, account)
		if err != nil {
			return err
		}
		grants = append(grants, of...)
	}
	verdict := privilege.Compare(scenario.SystemNamespace, grants, uses, rarelyUsed, expected)
	fmt.Printf("e2e: %d permissions were compared with %d uses\n%s", len(grants), len(uses.Allowed), verdict)
	if verdict.Wrong() {
		return errors.New("permissions and their use differ, see above: take the permission away (or add to test/e2e/permissions_test.go when it is needed)")
	}
	return nil
}
