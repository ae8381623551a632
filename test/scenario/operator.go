package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/clairfeed"
)

// Names of the operator's Deployments, the same for every installation method.
const (
	ManagerDeployment  = "deployment/scanner-operator-manager"
	NotifierDeployment = "deployment/scanner-operator-notifier"
)

// DeployOperator does what "make deploy" does, with the demo's settings.
func (e *Environment) DeployOperator(ctx context.Context) (string, error) {
	if err := e.checkStorage(ctx); err != nil {
		return "", err
	}
	if err := e.writeOverlay(ctx); err != nil {
		return "", err
	}
	rendered, err := e.Kubectl(ctx, "kustomize", e.bin("fixtures", "operator"))
	if err != nil {
		return "", err
	}
	if err := e.ApplyText(ctx, rendered); err != nil {
		return "", err
	}
	if err := e.WaitForRollout(ctx, SystemNamespace, ManagerDeployment, NotifierDeployment); err != nil {
		return "", err
	}
	return "manager and notifier are ready in " + SystemNamespace, e.WaitForAPI(ctx)
}

// WaitForAPI waits until the API server serves the operator's CRDs, a moment after their creation.
func (e *Environment) WaitForAPI(ctx context.Context) error {
	_, err := e.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s",
		"crd/scanners.scanner-operator.io", "crd/clusterscanners.scanner-operator.io", "crd/imagescans.scanner-operator.io",
		"crd/vulnerabilityexceptions.scanner-operator.io", "crd/clustervulnerabilityexceptions.scanner-operator.io")
	return err
}

// writeOverlay writes a kustomization on top of that of "make deploy", which uses the images of the last "make images".
func (e *Environment) writeOverlay(ctx context.Context) error {
	overlay := exec.CommandContext(ctx, e.bin("image-builder"), "overlay", "-registry="+e.Registry)
	overlay.Dir = e.Root
	if text, err := overlay.CombinedOutput(); err != nil {
		return fmt.Errorf("images of the operator: %w\n%s", err, text)
	}
	values, err := e.operatorValues()
	if err != nil {
		return err
	}
	dir := e.bin("fixtures", "operator")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []string{"kustomization.yaml", "config.yaml", "trust.yaml"} {
		text, err := render("operator/"+file, values)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// OperatorConfig returns the operator's configuration file for the demo, for other installation methods. The notifier additionally must
// trust SlackAuthority and allow SlackHost.
func (e *Environment) OperatorConfig() (string, error) {
	values, err := e.operatorValues()
	if err != nil {
		return "", err
	}
	return render("operator/config.yaml", values)
}

// OperatorImages returns the images of the last "make images" by digest: scanner-operator, scanner-notifier, scanner-grype.
func (e *Environment) OperatorImages() (map[string]string, error) { return ImagesOf(e.Root) }

// ImagesOf returns the images of another checkout, as OperatorImages does.
func ImagesOf(root string) (map[string]string, error) {
	content, err := os.ReadFile(filepath.Join(root, "bin", "images.json"))
	if err != nil {
		return nil, fmt.Errorf("images of the operator (make images): %w", err)
	}
	var pushed map[string]string
	return pushed, json.Unmarshal(content, &pushed)
}

func (e *Environment) operatorValues() (map[string]any, error) {
	// A JSON string is also a YAML string, including line breaks.
	authority, err := json.Marshal(string(slices.Concat(e.SlackAuthority, e.receiverAuthority)))
	if err != nil {
		return nil, err
	}
	registry, err := build.ParseReference(e.Reference("shop/web"))
	if err != nil {
		return nil, fmt.Errorf("REGISTRY: %w", err)
	}
	values := map[string]any{
		"Namespace": SystemNamespace, "Label": Label, "Authority": string(authority),
		"SlackHost": SlackHost, "DatabaseURL": databaseURL, "PollInterval": 5 * time.Second, "DatabaseClaim": e.DatabaseClaim,
		"RegistryHost": registry.Context().RegistryStr(), "PlainHTTP": registry.Context().Scheme() == "http",
		"PrivateHost": "", "PrivateAuthority": "", "Clair": nil, "Database": e.postgreSQL, "Store": e.PostgreSQL,
		"Integrations": e.Integrations, "ReceiverHost": ReceiverHost, "AttestedHost": "",
	}
	if e.sbomKey != nil && e.HasAttestedHost() {
		if values["SBOMKey"], err = e.sbomPublicKey(); err != nil {
			return nil, err
		}
		values["AttestedHost"] = attestedHost
	}
	if e.clair != nil {
		values["Clair"] = e.clair.image
		values["ClairURL"], values["Updaters"] = clairURL, strings.Join(slices.Concat(clairfeed.VulnerabilityUpdaters, clairfeed.EnrichmentUpdaters), ", ")
	}
	if e.Private != nil {
		privateAuthority, err := json.Marshal(e.Private.Authority)
		if err != nil {
			return nil, err
		}
		values["PrivateHost"], values["PrivateAuthority"] = e.Private.Host, string(privateAuthority)
	}
	if e.Upstream {
		values["DatabaseURL"], values["PollInterval"] = "https://grype.anchore.io/databases", time.Hour
	}
	return values, nil
}

// checkStorage returns an error early if no volume is available. Otherwise the pod would wait for its volume without a message.
func (e *Environment) checkStorage(ctx context.Context) error {
	var classes storagev1.StorageClassList
	if err := e.Client.List(ctx, &classes); err != nil {
		return err
	}
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return nil
		}
	}
	var volumes corev1.PersistentVolumeList
	if err := e.Client.List(ctx, &volumes); err != nil {
		return err
	}
	for _, volume := range volumes.Items {
		if volume.Status.Phase == corev1.VolumeAvailable && volume.Spec.StorageClassName == "" {
			return nil
		}
	}
	return errors.New("the operator needs a volume: the cluster has neither a default StorageClass nor a PersistentVolume without class that is free " +
		"(a local cluster has twenty, each for one run: make cluster-down gives new ones)")
}

// errForeign means that an operator is installed that the demo has not installed.
var errForeign = errors.New("an operator that the demo has not installed is in " + SystemNamespace + "; remove it first: make undeploy")

// Remove removes everything that the demo has created in the cluster, including the operator, and reports whether there was anything. An
// operator from another installation is not touched and is an error.
func (e *Environment) Remove(ctx context.Context) (removed bool, err error) {
	var system corev1.Namespace
	err = e.Client.Get(ctx, client.ObjectKey{Name: SystemNamespace}, &system)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, err
	case system.Labels[Label] != "true":
		return false, errForeign
	default:
		removed = true
		if err := e.removeScanners(ctx); err != nil {
			return true, err
		}
	}
	selector := Label + "=true"
	listed, err := e.Kubectl(ctx, "get", "namespaces", "--selector", selector, "--output", "name")
	if err != nil {
		return removed, err
	}
	if strings.TrimSpace(listed) != "" {
		removed = true
		// This deletes the operator's namespace too, and with it the PersistentVolumeClaim.
		if _, err := e.Kubectl(ctx, "delete", "namespaces", "--selector", selector, "--timeout=120s"); err != nil {
			return true, err
		}
	}
	if !removed {
		return false, e.removeLocalCopies()
	}
	return true, errors.Join(e.removeOperator(ctx), e.removeLocalCopies())
}

// removeLocalCopies removes the local copies of published data.
func (e *Environment) removeLocalCopies() error {
	return errors.Join(e.removeDatabases(), e.removeFeeds())
}

// removeScanners deletes Scanners and ClusterScanners while the operator still runs, so that it can clean up its objects. An earlier version may
// not have both kinds.
func (e *Environment) removeScanners(ctx context.Context) error {
	for _, kind := range []string{"scanners", "clusterscanners"} {
		_, err := e.Kubectl(ctx, "delete", kind+".scanner-operator.io", "--all", "--all-namespaces", "--ignore-not-found", "--timeout=60s")
		if err != nil && !strings.Contains(err.Error(), "the server doesn't have a resource type") {
			return err
		}
	}
	return nil
}

// removeOperator removes the operator's objects outside namespaces.
func (e *Environment) removeOperator(ctx context.Context) error {
	rendered, err := e.Kubectl(ctx, "kustomize", filepath.Join(e.Root, "config", "quickstart")) // contains config/default
	if err != nil {
		return err
	}
	_, err = e.kubectl(ctx, rendered, "delete", "--ignore-not-found", "--timeout=120s", "-f", "-")
	if err != nil {
		return err
	}
	// With Clair and with integrations, further components are installed.
	_, err = e.Kubectl(ctx, "delete", "clusterrolebinding,clusterrole", "scanner-operator-notifier-clair-webhooks", "scanner-operator-openreports",
		"--ignore-not-found")
	if err != nil {
		return err
	}
	_, err = e.Kubectl(ctx, "delete", "crd", "--selector", Label+"=true", "--ignore-not-found", "--timeout=60s")
	return err
}
