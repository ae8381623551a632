package notifier

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/election"
)

// Options are the notifier's flags. Each can also be set by an environment variable: SCANNER_NOTIFIER_ and the flag's name in capitals,
// with "_" for "-".
type Options struct {
	// Listen, HealthListen and MetricsListen are addresses to listen on: for deliveries over TLS, and for probes and metrics over plain
	// HTTP.
	Listen, HealthListen, MetricsListen string
	// ServingSecret is the name of the Secret in Namespace with the serving certificate.
	ServingSecret string
	// ManagerServiceAccount may request deliveries. Its form is "system:serviceaccount:<namespace>:<name>".
	ManagerServiceAccount string
	// ServiceAccount is the notifier's own, for advice on how to grant access to a Secret.
	ServiceAccount string
	// AllowedWebhookHosts are the hosts that the notifier may post to and the networks that these may be in, separated by commas:
	// egress.NewPolicy describes them.
	AllowedWebhookHosts string
	// SlackAPIURL is the https address of Slack's Web API, which gets the tokens of Slack apps.
	SlackAPIURL string
	// SlackDirectMessages lets Slack apps post to persons, too.
	SlackDirectMessages bool
	// CAFile holds CA certificates to trust in addition to the built-in ones. The file may be missing.
	CAFile string
	// ClairWebhookListen is the address to listen on for Clair's webhooks; empty to disable them. They use TLS with the certificate in
	// ClairWebhookCertDir, or plain HTTP if ClairWebhookPlainHTTP is set.
	ClairWebhookListen, ClairWebhookCertDir string
	ClairWebhookPlainHTTP                   bool
	// Config is the operator's configuration file. The notifier uses only clair.instances.
	Config string
	// LeaderElect lets only the holder of a Lease send, so that several notifiers can run.
	LeaderElect bool
	// Lease has the times of that Lease.
	Lease election.Times
	// Kubeconfig is the kubeconfig file for running outside of a cluster.
	Kubeconfig string
	// Namespace, PodName and PodIP are those of the notifier's pod. There are no flags for them. Only LeaderElect needs the latter two.
	Namespace, PodName, PodIP string
}

// NewOptions returns options with the values from the environment: Namespace from POD_NAMESPACE, PodName from POD_NAME, PodIP from POD_IP, and
// the default of ServiceAccount from SERVICE_ACCOUNT.
func NewOptions(getenv func(string) string) *Options {
	return &Options{
		Namespace: getenv("POD_NAMESPACE"), PodName: getenv("POD_NAME"), PodIP: getenv("POD_IP"),
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
		"full name of the ServiceAccount that may request deliveries (default system:serviceaccount:<POD_NAMESPACE>:scanner-operator-manager)")
	flags.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount,
		"the notifier's own ServiceAccount, for the commands that let it read a Secret (default $SERVICE_ACCOUNT)")
	flags.StringVar(&o.AllowedWebhookHosts, "allowed-webhook-hosts", "hooks.slack.com,hooks.slack-gov.com",
		"hosts that may be posted to, comma separated, each with a port if it is not 443: hooks.example.com, *.example.com for all hosts below a domain, "+
			"http://host without TLS, smtp://host for a mail server without TLS. A network such as 10.0.0.0/8 allows these hosts to have addresses in it that are not public")
	flags.StringVar(&o.SlackAPIURL, "slack-api-url", slack.APIURL,
		"https address of Slack's Web API, for receivers that are Slack apps; their tokens are sent there (GovSlack: https://slack-gov.com/api)")
	flags.BoolVar(&o.SlackDirectMessages, "slack-direct-messages", false, "let receivers that are Slack apps post to persons: whoever may change a Scanner chooses whom")
	flags.StringVar(&o.CAFile, "ca-file", "", "file with certificates (PEM) to trust in addition to the built-in ones; it need not exist")
	flags.StringVar(&o.ClairWebhookListen, "clair-webhook-listen", "",
		"address for Clair's webhooks; empty to disable them. Needs --config, and either --clair-webhook-cert-dir or --clair-webhook-plain-http")
	flags.StringVar(&o.ClairWebhookCertDir, "clair-webhook-cert-dir", "",
		"directory with tls.crt and tls.key for Clair's webhooks; they are read again when they change")
	flags.BoolVar(&o.ClairWebhookPlainHTTP, "clair-webhook-plain-http", false,
		"accept Clair's webhooks over plain HTTP; whoever reads the traffic can read their token")
	flags.StringVar(&o.Config, "config", "", "the operator's configuration file, for clair.instances")
	flags.BoolVar(&o.LeaderElect, "leader-elect", false,
		"send only while holding the Lease scanner-operator-notifier, and keep the epoch of the managers in it; needed for more than one notifier or manager")
	o.Lease.AddFlags(flags, "30s")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file, for running outside of a cluster")
}

// Complete sets defaults that depend on other options, and validates all of them. Errors name the flag.
func (o *Options) Complete() error {
	if o.Namespace == "" {
		return errors.New("environment variable POD_NAMESPACE: set it to the notifier's namespace")
	}
	if o.ManagerServiceAccount == "" {
		o.ManagerServiceAccount = "system:serviceaccount:" + o.Namespace + ":scanner-operator-manager"
	}
	parts := strings.Split(o.ManagerServiceAccount, ":")
	switch {
	case len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "":
		return fmt.Errorf("--manager-service-account %q: want system:serviceaccount:<namespace>:<name>", o.ManagerServiceAccount)
	case strings.Trim(o.AllowedWebhookHosts, ", ") == "":
		return errors.New("--allowed-webhook-hosts: name at least one host")
	case o.ServingSecret == "":
		return errors.New("--serving-secret: a name is needed")
	}
	if _, err := o.Egress(); err != nil {
		return err
	}
	if api, err := url.Parse(o.SlackAPIURL); err != nil || api.Scheme != "https" || api.Host == "" || api.User != nil || api.RawQuery != "" || api.Fragment != "" {
		return fmt.Errorf("--slack-api-url %q: want an https URL, such as %s", o.SlackAPIURL, slack.APIURL)
	}
	if _, err := o.DeliveryAddress(); o.LeaderElect && err != nil {
		return err
	}
	if o.Lease = o.Lease.Or(election.ForReplicas); o.Lease.Validate() != nil {
		return o.Lease.Validate()
	}
	return o.checkClairWebhooks()
}

// DeliveryAddress returns the address of this notifier for deliveries, as "IP:port". Only LeaderElect needs it.
func (o *Options) DeliveryAddress() (string, error) {
	_, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	address, err := netip.ParseAddrPort(net.JoinHostPort(o.PodIP, port))
	if err != nil || o.PodName == "" {
		return "", errors.New("--leader-elect: also needs the environment variables POD_NAME and POD_IP, with the name and the address of the notifier's pod")
	}
	return address.String(), nil
}

// checkClairWebhooks requires an explicit choice between TLS and plain HTTP.
func (o *Options) checkClairWebhooks() error {
	certificate := o.ClairWebhookCertDir != ""
	switch on := o.ClairWebhookListen != ""; {
	case !on && certificate:
		return errors.New("--clair-webhook-cert-dir: it needs --clair-webhook-listen, such as :8444")
	case !on && o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-plain-http: it needs --clair-webhook-listen, such as :8444")
	case on && certificate && o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-plain-http and --clair-webhook-cert-dir: use only one of them")
	case on && !certificate && !o.ClairWebhookPlainHTTP:
		return errors.New("--clair-webhook-listen: also needs --clair-webhook-cert-dir with tls.crt and tls.key, " +
			"or --clair-webhook-plain-http where the network between Clair and the notifier is trusted")
	case on && o.Config == "":
		return errors.New("--clair-webhook-listen: also needs --config, the operator's configuration file: its clair.instances lists the allowed Clairs")
	}
	return nil
}

// Egress returns the policy for the addresses of receivers.
func (o *Options) Egress() (*egress.Policy, error) {
	policy, err := egress.NewPolicy(strings.Split(o.AllowedWebhookHosts, ","))
	if err != nil {
		return nil, fmt.Errorf("--allowed-webhook-hosts: %w", err)
	}
	return policy, nil
}
