package story

import (
	"cmp"
	"context"
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

// Namespaces of the story.
const (
	// SystemNamespace is the operator's, as in config/default.
	SystemNamespace = "scanner-operator-system"
	// InfraNamespace holds what the story needs and a real cluster has elsewhere: Slack and the vulnerability database.
	InfraNamespace = "demo-infra"
)

// Label marks every namespace that the story makes, so that Remove finds them, and only them.
const Label = "scanner-operator.io/story"

// ScannerName is the name of every Scanner in the story.
const ScannerName = "default"

// Options say where the story takes place.
type Options struct {
	// Root is the project's directory. What "make" has built is in bin below it.
	Root string
	// Registry is where the operator's images were pushed: host/path.
	Registry string
	// Backend is the engine of the story's Scanners: Grype or Clair.
	Backend v1alpha1.BackendType
	// Both installs what the other engine needs, too; Using then tells the story with that.
	Both bool
	// Upstream takes the vulnerability database that the Grype project publishes, which needs internet in the cluster.
	Upstream bool
	// Out is told what goes on.
	Out io.Writer
}

// OptionsFromEnvironment reads REGISTRY, BACKEND and DEMO_DB and finds the project's directory above the working directory.
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
	switch database := os.Getenv("DEMO_DB"); {
	case database == "":
	case database == "upstream" && options.Backend == v1alpha1.BackendGrype:
		options.Upstream = true
	default:
		return Options{}, fmt.Errorf("DEMO_DB=%s is not known: leave it out for the project's own advisories, or give upstream with BACKEND=grype", database)
	}
	return options, nil
}

// projectRoot is the directory with the PROJECT file, the working directory or above it.
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

// Environment is a cluster with everything that the story needs.
type Environment struct {
	Options
	// Client reads and writes what has types.
	Client client.Client
	// Clientset reaches what only it can: logs, Services by way of the API server, watches.
	Clientset kubernetes.Interface
	// Jobs are the catalog Jobs that were made since the environment was connected.
	Jobs *JobLog
	// Pulls is the registry's access log; nil where it cannot be read.
	Pulls *AccessLog
	// Private is a registry that wants credentials; nil where there is none.
	Private *PrivateRegistry
	// SlackAuthority signed the certificate of the Slack stand-in, PEM.
	SlackAuthority []byte
	// Database is the vulnerability database that was published last.
	Database Database
	// clair is what the story has installed of Clair; nil without.
	clair *clairSetup
}

// Connect takes the cluster that KUBECONFIG names.
func Connect(ctx context.Context, options Options) (*Environment, error) {
	if os.Getenv("KUBECONFIG") == "" {
		return nil, errors.New("KUBECONFIG is not set: use make demo or make e2e, which run this beside a cluster")
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	// The story asks often, and is alone.
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

// has says whether Scanners of the environment may have an engine.
func (e *Environment) has(backend v1alpha1.BackendType) bool { return e.Both || e.Backend == backend }

// Using is the same environment for a story with another engine, whose shop is in namespaces of its own.
func (e *Environment) Using(backend v1alpha1.BackendType) *Environment {
	other := *e
	other.Backend = backend
	return &other
}

// Shop is the namespace in which the shop runs.
func (e *Environment) Shop() string {
	if e.Backend == v1alpha1.BackendClair {
		return "clair-shop"
	}
	return "shop"
}

// Staging is the namespace of the next version of the shop.
func (e *Environment) Staging() string { return e.Shop() + "-staging" }

// shopNamespaces are both.
func (e *Environment) shopNamespaces() []string { return []string{e.Shop(), e.Staging()} }

// SetUp is the environment's part of the story.
func (e *Environment) SetUp() []Step {
	steps := append(e.Surroundings(), Step{"The operator", e.DeployOperator})
	if e.has(v1alpha1.BackendClair) {
		steps = append(steps, Step{"Clair and PostgreSQL beside it", e.clairRuns})
	}
	return steps
}

// Surroundings is all of SetUp that comes before the operator: whoever tests how it is installed installs it themselves.
func (e *Environment) Surroundings() []Step {
	steps := []Step{
		{"Remove what an earlier run left", e.removeEarlier},
		{"Push the images of the shop", e.pushWorkloads},
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
	return append(steps, Step{"A stand-in for Slack, over TLS with a certificate authority of its own", e.startSlack})
}

func (e *Environment) removeEarlier(ctx context.Context) (string, error) {
	removed, err := e.Remove(ctx)
	if err == nil && !removed {
		return "nothing is there", nil
	}
	return "removed", err
}

// bin is where "make" writes what it builds.
func (e *Environment) bin(name ...string) string {
	return filepath.Join(append([]string{e.Root, "bin"}, name...)...)
}

// ImagesDir is where the images of the story are between compiling and pushing.
func ImagesDir(root string) string { return filepath.Join(root, "bin", "story", "images") }

// repository is where an image of the story lies. In the local registry it is right below the host, as real shops have
// it; elsewhere below the path that the user may write to.
func (e *Environment) repository(name string) string {
	if host, _, _ := strings.Cut(e.Registry, "/"); host == build.LocalRegistry {
		return host + "/" + name
	}
	return e.Registry + "/" + name
}

// Reference is an image of the story as its pods name it.
func (e *Environment) Reference(name string) string { return e.repository(name) + ":" + tag }

// tag of all images of the story.
const tag = "1.0"

// missing is an image that no registry has.
func (e *Environment) missing() string { return e.repository(images.Missing) + ":missing" }

// soon is how long something may take that is a matter of seconds, on a slow machine.
const soon = time.Minute

// scanWithin is how long it may take until a few images are scanned. A whole database must be downloaded first, or Clair
// must have read its sources.
func (e *Environment) scanWithin() time.Duration {
	switch {
	case e.Upstream:
		return 15 * time.Minute
	case e.Backend == v1alpha1.BackendClair:
		return 5 * time.Minute
	}
	return 3 * time.Minute
}
