package privilege

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	home     = "scanner-operator-system"
	manager  = "scanner-operator-manager"
	notifier = "scanner-operator-notifier"
)

// recorded writes an audit log of an API server with an incomplete last event. size is the length of the complete events.
func recorded(t *testing.T) (file string, size int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, append(text, `{"kind":"Event","user":{"user`...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, int64(len(text))
}

func lines(uses map[Use]int) []string {
	var all []string
	for use := range uses {
		all = append(all, use.String())
	}
	slices.Sort(all)
	return all
}

// Only resource requests of the operator's own pods count. Requests with a token that a test has requested, impersonated requests, and
// requests of another namespace's ServiceAccount of the same name do not count.
func TestUsesAreThoseOfTheOperatorsPods(t *testing.T) {
	file, size := recorded(t)
	uses, err := ReadUses(file, 0, home)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"scanner-operator-manager: create jobs.batch scan-catalog-dmpkutxdsy in scanner-operator-system",
		"scanner-operator-manager: get configmaps scanner-operator-ca in scanner-operator-system",
		"scanner-operator-manager: get secrets scanner-operator-authority in scanner-operator-system",
		"scanner-operator-manager: patch imagescans.scanner-operator.io/status web-60412ec87c34cae2 in clair-shop",
		"scanner-operator-manager: patch pods api-75cc8d74d7-lwqcv in clair-shop-staging",
		"scanner-operator-manager: update leases.coordination.k8s.io scanner-operator-manager in scanner-operator-system",
		"scanner-operator-manager: watch pods in the cluster",
		"scanner-operator-notifier: create tokenreviews.authentication.k8s.io in the cluster",
	}
	if diff := cmp.Diff(want, lines(uses.Allowed)); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"scanner-operator-manager: get secrets regcred in blog"}, lines(uses.Denied)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if later, err := ReadUses(file, size, home); err != nil || len(later.Allowed)+len(later.Denied) > 0 {
		t.Errorf("what was before this run counts: %v (error %v)", later, err)
	}
	if err := os.WriteFile(file, []byte("{]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadUses(file, 0, home); err == nil || !strings.Contains(err.Error(), "audit log "+file) {
		t.Errorf("a log that is none gives %v", err)
	}
}

// Only permissions that are bound to this ServiceAccount count, in the namespaces where they are bound.
func TestGrantsAreThoseOfTheAccount(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get", "update"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
	subject := func(namespace string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: manager}, {Kind: "ServiceAccount", Namespace: namespace, Name: manager}}
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	cluster := fake.NewClientBuilder().WithObjects(
		&rbacv1.Role{ObjectMeta: named(home, "own"), Rules: rules[:1]},
		&rbacv1.RoleBinding{ObjectMeta: named(home, "own"), Subjects: subject(home), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "own"}},
		&rbacv1.ClusterRole{ObjectMeta: named("", "wide"), Rules: rules[1:]},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "wide"), Subjects: subject(home), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}},
		&rbacv1.RoleBinding{ObjectMeta: named("shop", "wide"), Subjects: subject(home), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}},
		&rbacv1.RoleBinding{ObjectMeta: named("shop", "theirs"), Subjects: subject("shop"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"example.com/stay"}}},
		&rbacv1.RoleBinding{ObjectMeta: named("leaving", "wide"), Subjects: subject(home), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}},
		&rbacv1.RoleBinding{ObjectMeta: named("shop", "nothing"), Subjects: subject(home), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "gone"}},
	).Build()
	grants, err := GrantsOf(t.Context(), cluster, home, manager)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, grant := range grants {
		got = append(got, grant.String())
	}
	slices.Sort(got)
	want := []string{
		"scanner-operator-manager: ClusterRole wide: get /metrics everywhere",
		"scanner-operator-manager: ClusterRole wide: get /metrics in shop",
		"scanner-operator-manager: Role own: get secrets a in scanner-operator-system",
		"scanner-operator-manager: Role own: get secrets b in scanner-operator-system",
		"scanner-operator-manager: Role own: update secrets a in scanner-operator-system",
		"scanner-operator-manager: Role own: update secrets b in scanner-operator-system",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

func TestVerdict(t *testing.T) {
	file, _ := recorded(t)
	uses, err := ReadUses(file, 0, home)
	if err != nil {
		t.Fatal(err)
	}
	everywhere := func(account, verb, group, resource string) Grant {
		return Grant{Account: account, Role: "ClusterRole r", Verb: verb, Group: group, Resource: resource}
	}
	for name, tt := range map[string]struct {
		grant  Grant
		seldom []Exception
		want   Verdict
	}{
		"used in another namespace":      {grant: everywhere(manager, "patch", "", "pods")},
		"used in the whole cluster":      {grant: everywhere(manager, "watch", "", "pods")},
		"used for what has no namespace": {grant: everywhere(notifier, "create", "authentication.k8s.io", "tokenreviews")},
		"used by the other account": {grant: everywhere(manager, "create", "authentication.k8s.io", "tokenreviews"),
			want: Verdict{Unused: []string{"scanner-operator-manager: ClusterRole r: create tokenreviews.authentication.k8s.io everywhere"}}},
		"another verb": {grant: everywhere(manager, "delete", "", "pods"),
			want: Verdict{Unused: []string{"scanner-operator-manager: ClusterRole r: delete pods everywhere"}}},
		"another group": {grant: everywhere(manager, "create", "", "jobs"),
			want: Verdict{Unused: []string{"scanner-operator-manager: ClusterRole r: create jobs everywhere"}}},
		"without the subresource": {grant: everywhere(manager, "patch", "scanner-operator.io", "imagescans"),
			want: Verdict{Unused: []string{"scanner-operator-manager: ClusterRole r: patch imagescans.scanner-operator.io everywhere"}}},
		"used at home only": {grant: everywhere(manager, "create", "batch", "jobs"),
			want: Verdict{TooWide: []string{"scanner-operator-manager: ClusterRole r: create jobs.batch everywhere"}}},
		"granted at home": {grant: Grant{Account: manager, Namespace: home, Verb: "create", Group: "batch", Resource: "jobs"}},
		"granted elsewhere": {grant: Grant{Account: manager, Role: "Role r", Namespace: "shop", Verb: "create", Group: "batch", Resource: "jobs"},
			want: Verdict{Unused: []string{"scanner-operator-manager: Role r: create jobs.batch in shop"}}},
		"by name": {grant: Grant{Account: manager, Namespace: home, Verb: "get", Resource: "secrets", Name: "scanner-operator-authority"}},
		"by another name": {grant: Grant{Account: manager, Role: "Role r", Namespace: home, Verb: "get", Resource: "secrets", Name: "other"},
			want: Verdict{Unused: []string{"scanner-operator-manager: Role r: get secrets other in scanner-operator-system"}}},
		"refused is not used": {grant: Grant{Account: manager, Role: "Role r", Namespace: "blog", Verb: "get", Resource: "secrets"},
			want: Verdict{Unused: []string{"scanner-operator-manager: Role r: get secrets in blog"}}},
		"seldom needed": {grant: everywhere(manager, "get", "", "nodes"), seldom: []Exception{{Account: manager, Verb: "get", Resource: "nodes"}}},
		"seldom needed by nobody": {grant: everywhere(manager, "watch", "", "pods"), seldom: []Exception{{Account: notifier, Verb: "watch", Resource: "pods"}},
			want: Verdict{Stale: []string{"scanner-operator-notifier: watch pods"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Compare(home, []Grant{tt.grant}, uses, tt.seldom, []Exception{{Account: manager, Verb: "get", Resource: "secrets"}})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if wrong := tt.want.String() != ""; got.Wrong() != wrong {
				t.Errorf("that permissions have to be changed is %v, want %v", got.Wrong(), wrong)
			}
		})
	}
}

// An unexpected denial is reported but does not require a change of permissions.
func TestDenialsAreReported(t *testing.T) {
	file, _ := recorded(t)
	uses, err := ReadUses(file, 0, home)
	if err != nil {
		t.Fatal(err)
	}
	verdict := Compare(home, nil, uses, nil, nil)
	if want := "refused: scanner-operator-manager: get secrets regcred in blog, 1 times\n"; verdict.String() != want || verdict.Wrong() {
		t.Errorf("want %q and nothing wrong, got %q and %v", want, verdict.String(), verdict.Wrong())
	}
}

// The permissions in manifests are those that the cluster would have if they were applied.
func TestGrantsInManifests(t *testing.T) {
	const manifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: m}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: scanner-operator-system}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [a], verbs: [get, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: scanner-operator-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects:
- {kind: ServiceAccount, name: scanner-operator-manager, namespace: scanner-operator-system}
---
apiVersion: scanner-operator.io/v1alpha1
kind: Scanner
metadata: {name: s}
`
	grants, err := GrantsIn(t.Context(), manifests, home, manager)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"scanner-operator-manager: Role r: get secrets a in scanner-operator-system",
		"scanner-operator-manager: Role r: delete secrets a in scanner-operator-system",
	}
	var got []string
	for _, grant := range grants {
		got = append(got, grant.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	if _, err := GrantsIn(t.Context(), "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: 1\n", home, manager); err == nil {
		t.Error("expected an error about a Role that is none")
	}
}
