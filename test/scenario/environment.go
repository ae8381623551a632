package scenario

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
)

// Namespaces of the demo.
const (
	// SystemNamespace is the operator's namespace, as in config/default.
	SystemNamespace = "scanner-operator-system"
	// InfraNamespace contains the services that a real cluster has elsewhere: Slack and the vulnerability database.
	InfraNamespace = "demo-infra"
)

// Label marks every namespace that the demo creates. Remove deletes these namespaces, and no others.
const Label = "scanner-operator.io/demo"

// ScannerName is the name of every Scanner in the demo.
const ScannerName = "default"

// Options configure the demo.
type Options struct {
	// Root is the project's directory. "make" builds programs into bin below it.
	Root string
	// Registry is the registry and path that the operator's images were pushed to: host/path.
	Registry string
	// Backend is the engine of the demo's Scanners: Grype or Clair.
	Backend v1alpha1.BackendType
	// Both also installs what the other engine needs. Using then returns an environment for that engine.
	Both bool
	// PostgreSQL keeps the operator's store on a PostgreSQL server in the cluster.
	PostgreSQL bool
	// Integrations also installs stand-ins for the programs that receive messages and exports, OpenReports' CRD, and what the operator needs for
	// them and for attested SBOMs.
	Integrations bool
	// DatabaseClaim is the PersistentVolumeClaim in which match workers keep vulnerability databases; empty means what the operator chooses.
	DatabaseClaim string
	// Upstream uses the vulnerability database of the Grype project, which requires internet access in the cluster.
	Upstream bool
	// Out receives the progress.
	Out io.Writer
}

// OptionsFromEnvironment reads REGISTRY, BACKEND, STORE and DEMO_DB, and finds the project's directory at or above the working directory.
func OptionsFromEnvironment(out io.Writer) (Options, error) {
	root, err := projectRoot()
	if err != nil {
		return Options{}, err
	}
	options := Options{Root: root, Out: out, Registry: cmp.Or(os.Getenv("REGISTRY"), build.LocalRegistry+"/scanner-operator")}
	switch backend := os.Getenv("BACKEND"); backend {
	case "", "grype":
		options.Backend = v1alpha1.BackendGrype
	case "clair":
		options.Backend = v1alpha1.BackendClair
	default:
		return Options{}, fmt.Errorf("BACKEND=%s is not known: give grype or clair", backend)
	}
	switch store := os.Getenv("STORE"); store {
	case "", "sqlite":
	case "postgres":
		options.PostgreSQL = true
	default:
		return Options{}, fmt.Errorf("STORE=%s is not known: give sqlite or postgres", store)
	}
	switch database := os.Getenv("DEMO_DB"); {
	case database == "":
	case database == "upstream" && options.Backend == v1alpha1.BackendGrype:
		options.Upstream = true
	default:
		return Options{}, fmt.Errorf("DEMO_DB=%s is not known: leave it out for the project's own advisories, or give upstream with BACKEND=grype", database)
	}
	return options, nil
}

// projectRoot returns the directory with the PROJECT file: the working directory or one above it.
func projectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("run this inside the project's directory: there is no PROJECT file here or above")
}

// Environment is a cluster with everything that the demo needs.
type Environment struct {
	Options
	// Client reads and writes typed objects.
	Client client.Client
	// Clientset is for logs, the service proxy of the API server, and watches.
	Clientset kubernetes.Interface
	// Jobs are the catalog Jobs that were created since Connect.
	Jobs *JobLog
	// Pulls is the registry's access log; nil if it cannot be read.
	Pulls *AccessLog
	// Private is a registry that requires credentials; nil if there is none.
	Private *PrivateRegistry
	// SlackAuthority is the certificate authority of the Slack stand-in, PEM.
	SlackAuthority []byte
	// receiverAuthority is the certificate authority of the stand-in for other receivers, PEM; empty without Integrations.
	receiverAuthority []byte
	// sbomKey signs SBOMs; nil without Integrations.
	sbomKey *ecdsa.PrivateKey
	// Database is the vulnerability database that was published last.
	Database Database
	// clair is the installation of Clair; nil without Clair.
	clair *clairSetup
	// postgreSQL is the image of PostgreSQL; nil as long as nothing needs it.
	postgreSQL *pushedImage
}

// Connect connects to the cluster that KUBECONFIG names.
func Connect(ctx context.Context, options Options) (*Environment, error) {
	if os.Getenv("KUBECONFIG") == "" {
		return nil, errors.New("KUBECONFIG is not set: use make demo or make e2e, which run this beside a cluster")
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	// No client-side rate limit: checks are frequent, and there is no other client.
	config.QPS = -1 // no limit
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	e := &Environment{Options: options, Pulls: openAccessLog(os.Getenv("SCANNER_REGISTRY_LOG"))}
	if e.Private, err = privateRegistryFromEnvironment(); err != nil {
		return nil, err
	}
	if e.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if e.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if e.Jobs, err = watchJobs(ctx, e.Clientset); err != nil {
		return nil, err
	}
	return e, nil
}

// has reports whether Scanners of the environment may use an engine.
func (e *Environment) has(backend v1alpha1.BackendType) bool { return e.Both || e.Backend == backend }

// WithBackend returns the same environment for another engine, with the application in namespaces of its own.
func (e *Environment) WithBackend(backend v1alpha1.BackendType) *Environment {
	other := *e
	other.Backend = backend
	return &other
}

// Production returns the namespace of the demo's application, a shop.
func (e *Environment) Production() string {
	if e.Backend == v1alpha1.BackendClair {
		return "clair-shop"
	}
	return "shop"
}

// Staging returns the namespace of the application's next version.
func (e *Environment) Staging() string { return e.Production() + "-staging" }

// namespaces returns both namespaces of the application.
func (e *Environment) namespaces() []string { return []string{e.Production(), e.Staging()} }

// SetUp returns the steps that set up the environment, including the operator.
func (e *Environment) SetUp() []Step {
	steps := append(e.Prerequisites(), Step{"The operator", e.DeployOperator})
	if e.PostgreSQL {
		steps = append(steps, Step{"PostgreSQL with the operator's store", e.checkStore})
	}
	if e.has(v1alpha1.BackendClair) {
		steps = append(steps, Step{"Clair and PostgreSQL beside it", e.waitForClair})
	}
	return steps
}

// Prerequisites returns the steps of SetUp before the operator, for tests that install the operator themselves.
func (e *Environment) Prerequisites() []Step {
	steps := []Step{
		{"Remove what an earlier run left", e.removeEarlier},
		{"Push the images of the application", e.pushWorkloads},
	}
	switch {
	case e.Upstream:
		steps = append(steps, Step{"Vulnerability database of the Grype project, from the internet", func(context.Context) (string, error) {
			return "downloaded by the operator's match worker (this way is untested)", nil
		}})
	case e.has(v1alpha1.BackendGrype):
		steps = append(steps, Step{"Vulnerability database, served inside the cluster", e.publishFirst})
	}
	if e.has(v1alpha1.BackendClair) {
		steps = append(steps,
			Step{"Advisories as Debian, Alpine, OSV and NVD publish them, served inside the cluster", e.publishFirstFeeds},
			Step{"Secrets and settings of Clair", e.prepareClair})
	}
	if e.PostgreSQL {
		steps = append(steps, Step{"Secret of the store on PostgreSQL", e.prepareStore})
	}
	steps = append(steps, Step{"A stand-in for Slack, over TLS with a certificate authority of its own", e.startSlack})
	if e.Integrations {
		steps = append(steps,
			Step{"A stand-in for other receivers and tools, the same way", e.startReceivers},
			Step{"The CRD of OpenReports", e.installOpenReports},
			Step{"A key that signs SBOMs", e.makeSBOMKey})
	}
	return steps
}

func (e *Environment) removeEarlier(ctx context.Context) (string, error) {
	removed, err := e.Remove(ctx)
	if err == nil && !removed {
		return "nothing is there", nil
	}
	return "removed", err
}

// bin returns a path below the directory of built files.
func (e *Environment) bin(name ...string) string {
	return filepath.Join(append([]string{e.Root, "bin"}, name...)...)
}

// ImagesDir returns the directory of the compiled images of the demo.
func ImagesDir(root string) string { return filepath.Join(root, "bin", "fixtures", "images") }

// repository returns the repository of an image of the demo. In the local registry it is directly below the host, as with real
// applications. In another registry it is below the path that the user may write to.
func (e *Environment) repository(name string) string {
	if host, _, _ := strings.Cut(e.Registry, "/"); host == build.LocalRegistry {
		return host + "/" + name
	}
	return e.Registry + "/" + name
}

// Reference returns the reference of an image in its pods.
func (e *Environment) Reference(name string) string { return e.repository(name) + ":" + tag }

// tag is the tag of all images of the demo.
const tag = "1.0"

// missingImage returns the reference of an image that no registry has.
func (e *Environment) missingImage() string { return e.repository(images.Missing) + ":missing" }

// shortTimeout bounds the wait for something that takes seconds, on a slow machine.
const shortTimeout = time.Minute

// scanTimeout returns the maximum time until a few images are scanned, including the download of the upstream database or the first
// update of Clair.
func (e *Environment) scanTimeout() time.Duration {
	switch {
	case e.Upstream:
		return 15 * time.Minute
	case e.Backend == v1alpha1.BackendClair:
		return 5 * time.Minute
	}
	return 3 * time.Minute
}
