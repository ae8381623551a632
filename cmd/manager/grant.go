package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// Readers of Secrets, as --for names them.
const (
	forNotifier = "notifier"
	forManager  = "manager"
)

// secretCommands are examples of how to create the Secrets that a reader reads. %s is the Secret's name.
var secretCommands = map[string][]string{
	forNotifier: {
		"create secret generic %s --from-literal=url=https://hooks.slack.com/services/…   # a Slack webhook",
		"create secret generic %s --from-literal=token=xoxb-…                             # a Slack app",
		"create secret generic %s --from-literal=address=https://… --from-literal=token=… # a webhook, DefectDojo, or Dependency-Track",
	},
	forManager: {
		`create secret generic %s --from-literal=key="$key"                               # Clair's pre-shared key`,
		"create secret docker-registry %s --docker-server=registry.example.com …          # pull secret, for Clair",
	},
}

// grant is what the command prints: the permission of one or both readers for one Secret.
type grant struct {
	namespace, secret string
	operatorNamespace string
	readers           []string
	accounts          map[string]string // ServiceAccount by reader
}

// printGrant prints the Role and the RoleBinding that let the notifier or the manager read one Secret, for "kubectl apply -f -". It needs
// neither a cluster nor a permission.
func printGrant(args []string, out io.Writer) error {
	g, err := parseGrant(args)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, reader := range g.readers {
		if err := g.write(&text, reader); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, text.String())
	return err
}

func parseGrant(args []string) (grant, error) {
	flags := newFlags("grant")
	g := grant{accounts: map[string]string{}}
	flags.StringVar(&g.namespace, "namespace", "", "namespace of the Secret: that of the Scanner; for a ClusterScanner, the operator's own")
	flags.StringVar(&g.secret, "secret", "", "name of the Secret")
	readers := flags.String("for", forNotifier,
		"who reads the Secret: notifier (Slack, webhooks, Clair's webhooks), manager (Clair's key, pull secrets for Clair), or manager,notifier")
	flags.StringVar(&g.operatorNamespace, "operator-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), defaultNamespace),
		"the operator's own namespace (default $POD_NAMESPACE, else "+defaultNamespace+")")
	manager := flags.String("service-account", cmp.Or(os.Getenv("SERVICE_ACCOUNT"), managerName),
		"the manager's ServiceAccount (default $SERVICE_ACCOUNT, else "+managerName+")")
	notifier := flags.String("notifier-service-account", cmp.Or(os.Getenv("NOTIFIER_SERVICE_ACCOUNT"), notifierName),
		"the notifier's ServiceAccount (default $NOTIFIER_SERVICE_ACCOUNT, else "+notifierName+")")
	if err := flags.Parse(args); err != nil {
		return grant{}, err
	}
	if flags.NArg() > 0 {
		return grant{}, fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	g.readers = strings.Split(*readers, ",")
	g.accounts[forManager], g.accounts[forNotifier] = *manager, *notifier
	return g, g.validate()
}

func (g grant) validate() error {
	var errs []error
	invalid := func(flag, text, hint string, problems []string) {
		switch {
		case text == "":
			errs = append(errs, fmt.Errorf("--%s: %s", flag, hint))
		case len(problems) > 0:
			errs = append(errs, fmt.Errorf("--%s: %q: %s", flag, text, problems[0]))
		}
	}
	invalid("namespace", g.namespace, "name the Scanner's namespace, or for a ClusterScanner the operator's: --namespace "+g.operatorNamespace,
		validation.IsDNS1123Label(g.namespace))
	invalid("secret", g.secret, "name the Secret: --secret slack-webhook", validation.IsDNS1123Subdomain(g.secret))
	invalid("operator-namespace", g.operatorNamespace, "must not be empty", validation.IsDNS1123Label(g.operatorNamespace))
	invalid("service-account", g.accounts[forManager], "must not be empty", validation.IsDNS1123Subdomain(g.accounts[forManager]))
	invalid("notifier-service-account", g.accounts[forNotifier], "must not be empty", validation.IsDNS1123Subdomain(g.accounts[forNotifier]))
	for i, reader := range g.readers {
		if secretCommands[reader] == nil || slices.Contains(g.readers[:i], reader) {
			errs = append(errs, fmt.Errorf("--for: %q: must be %s, %s, or both with a comma between them",
				strings.Join(g.readers, ","), forNotifier, forManager))
			break
		}
	}
	return errors.Join(errs...)
}

// write writes what one reader needs. The comment before it says how to create the Secret.
func (g grant) write(out *strings.Builder, reader string) error {
	account := preflight.Account{Namespace: g.operatorNamespace, Name: g.accounts[reader]}
	name := "scanner-operator-" + reader + "-" + g.secret
	role := rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: g.namespace},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{preflight.Secrets}, ResourceNames: []string{g.secret}, Verbs: []string{"get"},
		}},
	}
	binding := rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
	}
	fmt.Fprintf(out, "---\n# Lets the ServiceAccount %s of namespace %s read the Secret %s in namespace %s, and no other.\n",
		account.Name, account.Namespace, g.secret, g.namespace)
	fmt.Fprintf(out, "# To create the Secret, one of:\n")
	for _, command := range secretCommands[reader] {
		fmt.Fprintf(out, "#   kubectl -n %s "+command+"\n", g.namespace, g.secret)
	}
	for i, object := range []any{role, binding} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return nil
}
