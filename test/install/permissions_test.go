package install

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/scanner-operator/scanner-operator/test/privilege"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// cleanupAccount is the ServiceAccount of both clean-ups: of the chart's hook, and of the Job of config/cleanup.
const cleanupAccount = "scanner-operator-cleanup"

// optional are permissions of the Job of config/cleanup for flags that users may add to its command.
var optional = []privilege.Exception{
	{Account: cleanupAccount, Verb: "list", Resource: "imagescans.scanner-operator.io", Why: "--results"},
	{Account: cleanupAccount, Verb: "delete", Resource: "imagescans.scanner-operator.io", Why: "--results"},
	{Account: cleanupAccount, Verb: "delete", Resource: "scanners.scanner-operator.io", Why: "--scanners"},
	{Account: cleanupAccount, Verb: "delete", Resource: "clusterscanners.scanner-operator.io", Why: "--scanners, --cluster-scanner"},
	{Account: cleanupAccount, Verb: "get", Resource: "clusterscanners.scanner-operator.io", Why: "only a ClusterScanner with Clair has a finalizer"},
	{Account: cleanupAccount, Verb: "patch", Resource: "clusterscanners.scanner-operator.io", Why: "only a ClusterScanner with Clair has a finalizer"},
	{Account: cleanupAccount, Verb: "delete", Resource: "customresourcedefinitions.apiextensions.k8s.io", Why: "--crds"},
	{Account: cleanupAccount, Verb: "delete", Resource: "persistentvolumeclaims", Why: "--database, --results"},
}

// checkCleanupPermissions compares the permissions of both clean-ups with their use, after all tests were run, or with E2E_PERMISSIONS=1.
func checkCleanupPermissions(ctx context.Context, log privilege.Log) error {
	if !log.IsWritten() || flag.Lookup("test.run").Value.String() != "" && os.Getenv("E2E_PERMISSIONS") == "" {
		fmt.Println("install: the clean-up's permissions are not compared with their use: not all tests were run, or no audit log is written")
		return nil
	}
	uses, err := log.Uses(scenario.SystemNamespace)
	if err != nil {
		return err
	}
	helm := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "helm"), "template", "scanner-operator",
		filepath.Join(env.Root, "charts", "scanner-operator"), "--namespace", scenario.SystemNamespace, "--kube-version=1.37")
	hook, err := helm.Output()
	if err != nil {
		return fmt.Errorf("helm template: %w", err)
	}
	job, err := env.Kubectl(ctx, "kustomize", filepath.Join(env.Root, "config", "cleanup"))
	if err != nil {
		return err
	}
	return errors.Join(
		compareCleanupPermissions(ctx, "the chart", string(hook), uses, nil),
		compareCleanupPermissions(ctx, "config/cleanup", job, uses, optional),
	)
}

func compareCleanupPermissions(ctx context.Context, of, manifests string, uses privilege.Uses, seldom []privilege.Exception) error {
	grants, err := privilege.GrantsIn(ctx, manifests, scenario.SystemNamespace, cleanupAccount)
	if err != nil {
		return err
	}
	verdict := privilege.Compare(scenario.SystemNamespace, grants, uses, seldom, nil)
	verdict.Refused = nil // tests remove permissions
	fmt.Printf("install: %d permissions of the clean-up of %s were compared with %d uses\n%s", len(grants), of, len(uses.Allowed), verdict)
	if len(grants) == 0 || verdict.Wrong() {
		return fmt.Errorf("permissions of the clean-up of %s and their use differ, see above", of)
	}
	return nil
}
