package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestPermissionsOfCommands: each command works with the permissions that its help lists, and with none of them missing. Permissions that are
// needed only in some cases are granted in those cases.
func TestPermissionsOfCommands(t *testing.T) {
	w := newWorld(t)
	f := fixture{world: w, ctx: t.Context()}
	for i, tt := range []struct {
		line string
		// cases are those that apply to the command line.
		cases []string
	}{
		{"findings", nil}, {"image web", nil}, {"cve CVE-2026-0001", nil}, {"actions", nil}, {"sbom web", nil}, {"why web", nil}, {"status", nil},
		{"why web -o json", []string{"for the receivers of a ClusterScanner"}},
		{"rescan web", []string{"for an IMAGE"}}, {"rescan --scanner default", []string{"with --scanner"}},
		{"test-message team", []string{"without --scanner and --cluster-scanner", "without --cluster-scanner"}},
		{"except CVE-2026-0001 --reason x --status fixed --yes", []string{"not with --cluster", "to show what it suppresses"}},
		{"except CVE-2026-0001 --reason x --status fixed --yes --name e", []string{"not with --cluster", "to show what it suppresses", "if one of this name exists"}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			w.t = t
			args := strings.Fields(tt.line)
			needs := slices.DeleteFunc(slices.Clone(permissionsOf(t, args[0])), func(p permission) bool {
				return p.scope != inNamespace || p.when != "" && !slices.Contains(tt.cases, p.when)
			})
			if len(needs) == 0 {
				t.Fatal("its help lists no permission")
			}
			for missing := -1; missing < len(needs); missing++ {
				namespace := fmt.Sprintf("permissions-%d-%d", i, missing+1)
				f.namespaces(namespace)
				scanner := f.scanner(namespace, v1alpha1.ImageCounts{Total: 1, Scanned: 1})
				f.scanned(scanner, "web", []string{"Deployment/web"}, vulnerable("CVE-2026-0001", "openssl", "3.0.11", finding.High, "3.0.14"))
				w.must(f.err)
				scanner.Status.TestMessage = &v1alpha1.TestMessageStatus{Request: "team 2026-03-01T12:00:00Z", Outcome: v1alpha1.TestMessageDelivered}
				w.must(w.cluster.Status().Update(f.ctx, scanner))
				granted := slices.Clone(needs)
				if missing >= 0 {
					granted = slices.Delete(granted, missing, missing+1)
				}
				r := w.run(w.kubeconfig(namespace, w.grant(namespace, granted)), args...)
				switch {
				case missing < 0 && r.status != 0:
					t.Errorf("with %v: %+v", granted, r)
				case missing >= 0 && r.status == 0 && !strings.Contains(needs[missing].when, "if one of this name exists"):
					t.Errorf("it works without %v: %+v", needs[missing], r)
				}
			}
		})
	}
}

// permissionsOf returns what the help of a command lists.
func permissionsOf(t *testing.T, name string) []permission {
	t.Helper()
	s := App{}.newSession()
	for _, c := range s.root().Commands() {
		if c.Name() != name {
			continue
		}
		for _, need := range s.needs[name] {
			if !strings.Contains(c.Long, "Permissions:\n") || !strings.Contains(c.Long, "  "+need.String()+"\n") && !strings.HasSuffix(c.Long, "  "+need.String()) {
				t.Errorf("the help of %s does not list %q", name, need)
			}
		}
		return s.needs[name]
	}
	t.Fatalf("there is no command %s", name)
	return nil
}

// grant returns a token of a ServiceAccount with these permissions in a namespace. Each verb is a rule of its own.
func (w *world) grant(namespace string, permissions []permission) string {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	for _, p := range permissions {
		for _, verb := range p.verbs {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{p.group}, Resources: []string{p.resource}, Verbs: []string{verb}})
		}
	}
	w.must(w.cluster.Create(w.t.Context(), role))
	return w.token(namespace, namespace, role.Name)
}

// TestEveryCommandListsItsPermissions: no subcommand with access to a cluster forgets them.
func TestEveryCommandListsItsPermissions(t *testing.T) {
	s := App{}.newSession()
	without := []string{"version", "completion", "help"}
	for _, c := range s.root().Commands() {
		if !slices.Contains(without, c.Name()) && !strings.Contains(c.Long, "\n\nPermissions:\n  ") {
			t.Errorf("the help of %q lists no permissions", c.Name())
		}
	}
}
