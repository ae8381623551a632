package notifier

import (
	"cmp"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Options are the notifier's flags. Each has an environment variable, too: SCANNER_NOTIFIER_ and the flag's name in capitals,
// "-" as "_".
type Options struct {
	// Listen, HealthListen and MetricsListen are addresses: deliveries over TLS, probes and metrics over plain HTTP.
	Listen, HealthListen, MetricsListen string
	// ServingSecret is the name of the Secret with the serving certificate, in Namespace.
	ServingSecret string
	// ManagerServiceAccount may ask for deliveries, "system:serviceaccount:<namespace>:<name>".
	ManagerServiceAccount string
	// ServiceAccount is the notifier's own, for advice on how to let it read a Secret.
	ServiceAccount string
	// AllowedWebhookHosts may be posted to, comma separated.
	AllowedWebhookHosts string
	// CAFile holds certificates to trust beside the built-in ones; it need not exist.
	CAFile string
	// ClairWebhookListen is the address for Clair's webhooks; empty to take none. They come over TLS with the certificate in
	// ClairWebhookCertDir, or over plain HTTP if ClairWebhookPlainHTTP says so.
	ClairWebhookListen, ClairWebhookCertDir string
	ClairWebhookPlainHTTP                   bool
	// Config is the operator's configuration file, of which clair.instances counts here.
	Config string
	// Kubeconfig is for running outside of a cluster.
	Kubeconfig string
	// Namespace of the notifier; not a flag.
	Namespace string
}

// NewOptions returns the options with what the environment says: POD_NAMESPACE, and SERVICE_ACCOUNT as a default.
func NewOptions(getenv func(string) string) *Options {
	return &Options{
		Namespace:      getenv("POD_NAMESPACE"),
		ServiceAccount: cmp.Or(getenv("SERVICE_ACCOUNT"), "scanner-operator-notifier"),
	}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", ":8443", "address for deliveries, over TLS")
	flags.StringVar(&o.HealthListen, "health-listen", ":8081", "address for /healthz and /readyz, plain HTTP")
	flags.StringVar(&o.MetricsListen, "metrics-listen", ":8080", "address for /metrics, plain HTTP; empty to switch it off")
	flags.StringVar(&o.ServingSecret, "serving-secret", "scanner-operator-notifier-serving",
		"Secret in the notifier's namespace with the serving certificate (tls.crt, tls.key); the manager writes it")
	flags.StringVar(&o.ManagerServiceAccount, "manager-service-account", "",
		"full name of the ServiceAccount that may ask for deliveries (default system:serviceaccount:<POD_NAMESPACE>:scanner-operator-manager)")
	flags.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount,
		"the notifier's own ServiceAccount, named in advice on how to let it read a Secret (default $SERVICE_ACCOUNT)")
	flags.StringVar(&o.AllowedWebhookHosts, "allowed-webhook-hosts", "hooks.slack.com,hooks.slack-gov.com",
		"hosts that may be posted to, comma separated, each with a port if it is not 443")
	flags.StringVar(&o.CAFile, "ca-file", "", "file with certificates (PEM) to trust beside the built-in ones; it need not exist")
	flags.StringVar(&o.ClairWebhookListen, "clair-webhook-listen", "",
		"address for Clair's webhooks; empty to take none. Needs --config, and either --clair-webhook-cert-dir or --clair-webhook-plain-http")
	flags.StringVar(&o.ClairWebhookCertDir, "clair-webhook-cert-dir", "",
		"directory with tls.crt and tls.key for Clair's webhooks; they are read again when they change")
	flags.BoolVar(&o.ClairWebhookPlainHTTP, "clair-webhook-plain-http", false,
		"take Clair's webhooks over plain HTTP, where whoever sees the traffic sees their token")
	flags.StringVar(&o.Config, "config", "", "the operator's configuration file, for clair.instances")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file, for running outside of a cluster")
}

// Complete fills in what follows from the rest and checks it. Errors name the flag.
func (o *Options) Complete() error {
	if o.Namespace == "" {
		return errors.New("environment variable POD_NAMESPACE: the notifier's namespace is not known")
	}
	if o.ManagerServiceAccount == "" {
		o.ManagerServiceAccount = "system:serviceaccount:" + o.Namespace + ":scanner-operator-manager"
	}
	parts := strings.Split(o.ManagerServiceAccount, ":")
	switch {
	case len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "":
		return fmt.Errorf("--manager-service-account %q: want system:serviceaccount:<namespace>:<name>", o.ManagerServiceAccount)
	case strings.Trim(o.AllowedWebhookHosts, ", ") == "":
		return errors.New("--allowed-webhook-hosts: nothing could be posted to")
	case o.ServingSecret == "":
		return errors.New("--serving-secret: a name is needed")
	}
	return o.checkClairWebhooks()
}

// checkClairWebhooks wants plain HTTP to be a decision.
func (o *Options) checkClairWebhooks() error {
	certificate := o.ClairWebhookCertDir != ""
	switch on := o.ClairWebhookListen != ""; {
	case !on && certificate:
		return errors.New("--clair-webhook-cert-dir: no webhooks are taken without --clair-webhook-listen, such as :8444")
	case !on && o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-plain-http: no webhooks are taken without --clair-webhook-listen, such as :8444")
	case on && certificate && o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-plain-http: leave it out, or --clair-webhook-cert-dir: webhooks come over one of them")
	case on && !certificate && !o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-listen: also needs --clair-webhook-cert-dir with tls.crt and tls.key, " +
			"or --clair-webhook-plain-http where the network between Clair and the notifier is trusted")
	case on && o.Config == "":
		return errors.New("--clair-webhook-listen: also needs --config, the operator's configuration file: clair.instances in it lists the Clairs to speak with")
	}
	return nil
}

// Hosts are the allowed hosts, one by one.
func (o *Options) Hosts() []string { return strings.Split(o.AllowedWebhookHosts, ",") }

// Roots are the system's certificates, or the built-in ones where the system has none, and those of the CA file.
func (o *Options) Roots() (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("certificates of the system: %w", err)
	}
	if o.CAFile == "" {
		return roots, nil
	}
	pem, err := os.ReadFile(o.CAFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return roots, nil
	case err != nil:
		return nil, fmt.Errorf("--ca-file: %w", err)
	case !roots.AppendCertsFromPEM(pem):
		return nil, fmt.Errorf("--ca-file %s: no certificate in it (PEM)", o.CAFile)
	}
	return roots, nil
}
