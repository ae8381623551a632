package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// granted returns what the command prints, as objects by "kind namespace/name".
func granted(t *testing.T, args ...string) (roles map[string]rbacv1.Role, bindings map[string]rbacv1.RoleBinding, printed string) {
	t.Helper()
	var out bytes.Buffer
	if err := printGrant(args, &out); err != nil {
		t.Fatal(err)
	}
	roles, bindings = map[string]rbacv1.Role{}, map[string]rbacv1.RoleBinding{}
	for _, document := range strings.Split(out.String(), "---\n")[1:] {
		var role rbacv1.Role
		var binding rbacv1.RoleBinding
		if err := yaml.UnmarshalStrict([]byte(document), &role); err == nil {
			roles[role.Namespace+"/"+role.Name] = role
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &binding); err != nil {
			t.Fatalf("neither a Role nor a RoleBinding: %v\n%s", err, document)
		}
		bindings[binding.Namespace+"/"+binding.Name] = binding
	}
	return roles, bindings, out.String()
}

// TestGrantIsTheSample: for the sample's names, the command prints what config/samples/notifier-grant.yaml has.
func TestGrantIsTheSample(t *testing.T) {
	roles, bindings, _ := granted(t, "--namespace=shop", "--secret=slack-webhook")
	sample, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", "notifier-grant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(sample), "---\n")
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	for text, object := range map[string]any{documents[0]: &role, documents[1]: &binding} {
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Fatal(err)
		}
	}
	role.Namespace, binding.Namespace = "shop", "shop" // the sample has none, so that it can be applied to any namespace
	if diff := cmp.Diff(map[string]rbacv1.Role{"shop/" + role.Name: role}, roles); diff != "" {
		t.Errorf("Role (-sample +printed):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]rbacv1.RoleBinding{"shop/" + binding.Name: binding}, bindings); diff != "" {
		t.Errorf("RoleBinding (-sample +printed):\n%s", diff)
	}
}

// TestGrantNames: the reader's ServiceAccount comes from flags, or from the environment of the manager's pod.
func TestGrantNames(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "scanning")
	t.Setenv("SERVICE_ACCOUNT", "the-manager")
	t.Setenv("NOTIFIER_SERVICE_ACCOUNT", "the-notifier")
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"notifier":  {nil, []string{"scanning:the-notifier"}},
		"manager":   {[]string{"--for=manager"}, []string{"scanning:the-manager"}},
		"both":      {[]string{"--for=manager,notifier"}, []string{"scanning:the-manager", "scanning:the-notifier"}},
		"by flags":  {[]string{"--operator-namespace=other", "--notifier-service-account=a"}, []string{"other:a"}},
		"by a flag": {[]string{"--for=manager", "--service-account=b"}, []string{"scanning:b"}},
	} {
		t.Run(name, func(t *testing.T) {
			roles, bindings, printed := granted(t, append([]string{"--namespace=shop", "--secret=clair.key"}, tt.args...)...)
			if len(roles) != len(tt.want) || len(bindings) != len(tt.want) {
				t.Fatalf("%d Roles and %d RoleBindings, want %d each:\n%s", len(roles), len(bindings), len(tt.want), printed)
			}
			var accounts []string
			for _, binding := range bindings {
				accounts = append(accounts, binding.Subjects[0].Namespace+":"+binding.Subjects[0].Name)
				if _, found := roles["shop/"+binding.RoleRef.Name]; !found {
					t.Errorf("no Role %s", binding.RoleRef.Name)
				}
			}
			less := func(a, b string) bool { return a < b }
			if diff := cmp.Diff(tt.want, accounts, cmpopts.SortSlices(less)); diff != "" {
				t.Errorf("ServiceAccounts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGrantSaysHowToCreateTheSecret: the comments have a command for the Secret in its namespace.
func TestGrantSaysHowToCreateTheSecret(t *testing.T) {
	_, _, printed := granted(t, "--namespace=scanner-operator-system", "--secret=slack", "--for=notifier")
	want := "#   kubectl -n scanner-operator-system create secret generic slack --from-literal=url=https://hooks.slack.com/services/…"
	if !strings.Contains(printed, want) {
		t.Errorf("got\n%s\nwant a line with %q", printed, want)
	}
}

// TestGrantInvalid: an error names the flag and the way out, and nothing is printed that could be applied.
func TestGrantInvalid(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	valid := []string{"--namespace=shop", "--secret=slack-webhook"}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"nothing":                 {nil, "for a ClusterScanner the operator's: --namespace scanner-operator-system\n--secret: name the Secret"},
		"no name of a namespace":  {[]string{"--namespace=Shop", "--secret=a"}, `--namespace: "Shop": a lowercase RFC 1123 label`},
		"no name of a Secret":     {[]string{"--namespace=shop", "--secret=a\n- get"}, "--secret: \"a\\n- get\": a lowercase RFC 1123 subdomain"},
		"another reader":          {append(valid, "--for=worker"), `--for: "worker": must be notifier, manager, or both`},
		"a reader twice":          {append(valid, "--for=manager,manager"), `--for: "manager,manager": must be`},
		"no operator's namespace": {append(valid, "--operator-namespace="), "--operator-namespace: must not be empty"},
		"no account":              {append(valid, "--service-account=A b"), `--service-account: "A b"`},
		"an argument":             {append(valid, "shop"), `"shop" is not a flag`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printGrant(tt.args, &out); err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
				t.Errorf("the error is %v, want one that says %q; printed: %q", err, tt.want, out.String())
			}
		})
	}
}

// TestGrantIsWritten: a reader that ends early is an error.
func TestGrantIsWritten(t *testing.T) {
	closed, writer := io.Pipe()
	_ = closed.Close()
	if err := printGrant([]string{"--namespace=shop", "--secret=a"}, writer); err == nil {
		t.Error("nothing was written, and there is no error")
	}
}
