package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/election"
	"github.com/scanner-operator/scanner-operator/pkg/flagenv"
)

// Names of related objects in the operator's namespace. config/ uses the same names.
const (
	authoritySecret = "scanner-operator-authority"
	notifierSecret  = "scanner-operator-notifier-serving"
	ingestService   = "scanner-operator-ingest"
	apiService      = "scanner-operator-api"
	authorityBundle = "scanner-operator-ca"
	notifierService = "scanner-operator-notifier"
	managerName     = "scanner-operator-manager"  // the name of its Deployment, Lease and ServiceAccount
	notifierName    = "scanner-operator-notifier" // the name of its Deployment and ServiceAccount
)

// options holds all settings of the process. Each flag has an environment variable: SCANNER_ and the flag's name in capitals, with "_" for
// "-". Nothing else reads the environment, except what Kubernetes and OLM provide, and the proxy (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), which
// is passed on to Jobs.
type options struct {
	ConfigFile string
	DataDir    string
	SpoolDir   string
	Namespace  string
	PodName    string
	Account    string
	WatchList  string
	// Watched holds the namespaces of WatchList; empty means all.
	Watched       []string
	WorkerImage   string
	IngestAddress string
	IngestURL     string
	APIAddress    string
	NotifierURL   string
	NotifierToken string
	ProbeAddress  string
	MetricsAddr   string
	ReadMore      string
	LeaderElect   bool
	Lease         election.Times
	FakeBackend   bool
	ShareSBOMs    bool
	SweepInterval time.Duration
	LogLevel      string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.ConfigFile, "config", "", "the operator's configuration file; empty: defaults")
	flags.StringVar(&o.DataDir, "data-dir", defaultDataDir, "directory of a store in a file (store.type SQLite), on a volume that outlives the pod")
	flags.StringVar(&o.SpoolDir, "spool-dir", "/var/spool/scanner-operator", "directory for uploads in progress, emptied at the start, on a volume that may fill up")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the operator's own namespace (default $POD_NAMESPACE)")
	flags.StringVar(&o.PodName, "pod-name", os.Getenv("POD_NAME"), "the operator's own pod (default $POD_NAME)")
	flags.StringVar(&o.Account, "service-account", cmp.Or(os.Getenv("SERVICE_ACCOUNT"), managerName), "the operator's own ServiceAccount, for advice on how to let it read Secrets (default $SERVICE_ACCOUNT)")
	flags.StringVar(&o.WatchList, "watch-namespaces", "", "the only namespaces that are scanned, with commas between them (default all)")
	flags.StringVar(&o.WorkerImage, "worker-image", os.Getenv("RELATED_IMAGE_WORKER"), "image of the scanner-grype worker (default $RELATED_IMAGE_WORKER)")
	flags.StringVar(&o.IngestAddress, "ingest-bind-address", ":9443", "where the ingest API listens")
	flags.StringVar(&o.IngestURL, "ingest-url", "", "where workers reach the ingest API (default its Service)")
	flags.StringVar(&o.APIAddress, "api-bind-address", ":8444", "where the read-only REST API listens, over HTTPS; 0 for nowhere")
	flags.StringVar(&o.NotifierURL, "notifier-url", "", "where the notifier is, by a DNS name, which its certificate then has (default its Service)")
	flags.StringVar(&o.NotifierToken, "notifier-token-file", "/var/run/secrets/scanner-operator/notifier-token", "file with the token for the notifier")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are")
	flags.StringVar(&o.MetricsAddr, "metrics-bind-address", ":8443", "where /metrics is, over HTTPS for callers who may read it; 0 for nowhere")
	flags.StringVar(&o.ReadMore, "read-more", "", "what messages say about where to read more (default: a kubectl command)")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "work only while holding a lease, so that two managers never work at once")
	o.Lease.AddFlags(flags, "30s; 90s with a store in a file, whose lock keeps a second manager out")
	flags.BoolVar(&o.FakeBackend, fakeBackendFlag, false, "serve Scanners of type Grype by an engine that invents findings, for tests")
	flags.BoolVar(&o.ShareSBOMs, "share-namespace-sboms", false, "let the SBOM that a namespace's own Job made, with its pull secrets, serve all namespaces: whoever controls one namespace then decides what is found in others")
	flags.DurationVar(&o.SweepInterval, "sweep-interval", time.Hour, "how often what nobody uses is removed from the store")
	flags.StringVar(&o.LogLevel, "log-level", "info", "info or debug")
}

// parse reads flags, then environment variables for flags that were not given, and validates the result.
func (o *options) parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is neither a flag nor a command", flags.Arg(0))
	}
	if err := flagenv.Complete(flags, "SCANNER_"); err != nil {
		return err
	}
	o.IngestURL = cmp.Or(o.IngestURL, "https://"+ingestService+"."+o.Namespace+".svc:9443")
	o.NotifierURL = cmp.Or(o.NotifierURL, "https://"+notifierService+"."+o.Namespace+".svc")
	return o.validate()
}

func (o *options) validate() error {
	var errs []error
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace: the operator must know its own namespace (set POD_NAMESPACE)"))
	}
	if o.WorkerImage == "" {
		errs = append(errs, errors.New("--worker-image: needed for the Grype backend (set RELATED_IMAGE_WORKER)"))
	}
	// Both URLs get tokens with which others could impersonate this process or its workers.
	if !strings.HasPrefix(o.IngestURL, "https://") {
		errs = append(errs, errors.New("--ingest-url: must begin with https://"))
	}
	if !strings.HasPrefix(o.NotifierURL, "https://") {
		errs = append(errs, errors.New("--notifier-url: must begin with https://"))
	}
	watched, err := config.ParseNamespaces(o.WatchList)
	if o.Watched = watched; err != nil {
		errs = append(errs, fmt.Errorf("--watch-namespaces: %w", err))
	}
	if o.SweepInterval < time.Second {
		errs = append(errs, errors.New("--sweep-interval: must be at least 1s"))
	}
	if o.LogLevel != "info" && o.LogLevel != "debug" {
		errs = append(errs, errors.New("--log-level: must be info or debug"))
	}
	return errors.Join(errs...)
}

// leaseTimes returns the times of the manager's Lease.
func (o *options) leaseTimes(store config.StoreType) (election.Times, error) {
	defaults := election.ForReplicas
	if store == config.SQLite {
		defaults = election.ForOneHolder
	}
	times := o.Lease.Or(defaults)
	return times, times.Validate()
}

// namespaces returns the namespaces to list for everything that is watched; "" stands for all.
func (o *options) namespaces() []string {
	if len(o.Watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return o.Watched
}

// notifierDNSNames returns the DNS names for the notifier's certificate: those of its Service, and the name by which this process reaches the
// notifier.
func (o *options) notifierDNSNames() []string {
	names := serviceDNSNames(notifierService, o.Namespace)
	u, err := url.Parse(o.NotifierURL)
	if err != nil || slices.Contains(names, u.Hostname()) || u.Hostname() == "" || net.ParseIP(u.Hostname()) != nil {
		return names
	}
	return append(names, u.Hostname())
}
