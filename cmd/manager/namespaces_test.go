package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	account     = "scanner-operator-manager"
	roleOf      = "scanner-operator-manager"
	clusterRole = "scanner-operator-manager-cluster"
)

// restricted returns a cluster whose operator has the permissions of config/rbac, and none in a namespace where nobody grants them.
func restricted(t *testing.T) *cluster {
	t.Helper()
	user := "system:serviceaccount:" + system + ":" + account
	c := newClusterFor(t, envtest.User{Name: user, Groups: []string{"system:serviceaccounts"}}, definitions)
	file, err := os.Open(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	c.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for range 2 {
		var role rbacv1.ClusterRole
		c.Expect(documents.Decode(&role)).To(Succeed())
		c.creates(&role)
	}
	var home rbacv1.Role
	c.Expect(documents.Decode(&home)).To(Succeed())
	home.Namespace = system
	c.creates(&home, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "home"}, Subjects: subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: home.Name},
	}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: clusterRole}, Subjects: subjects(), RoleRef: toClusterRole(clusterRole)})
	return c
}

func subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account}}
}

func toClusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// grants binds a ClusterRole to the operator in a namespace.
func (c *cluster) grants(namespace, role string) {
	c.t.Helper()
	c.creates(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, Subjects: subjects(), RoleRef: toClusterRole(role)})
}

// roleWithout creates a ClusterRole that has the permissions of the manager's, except some verbs of a resource.
func (c *cluster) roleWithout(name, resource string, verbs ...string) {
	c.t.Helper()
	var role rbacv1.ClusterRole
	c.Expect(c.client.Get(c.t.Context(), client.ObjectKey{Name: roleOf}, &role)).To(Succeed())
	role.ObjectMeta = metav1.ObjectMeta{Name: name}
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, resource) {
			role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(v string) bool { return slices.Contains(verbs, v) })
		}
	}
	c.creates(&role)
}

// hasScanner creates a namespace with a Scanner and a pod.
func (c *cluster) hasScanner(namespace string) {
	c.t.Helper()
	c.creates(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
		Spec:       v1alpha1.ScannerSpec{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
	})
	c.runsIn(namespace, "a")
}

// readyOf returns a function that describes the condition Ready of a Scanner.
func (c *cluster) readyOf(namespace string) func() string {
	return func() string {
		var scanner v1alpha1.Scanner
		if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &scanner); err != nil {
			return err.Error()
		}
		ready := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			return "nothing"
		}
		stalled := ""
		if meta.IsStatusConditionTrue(scanner.Status.Conditions, v1alpha1.ConditionStalled) {
			stalled = "stalled "
		}
		return stalled + ready.Reason + ": " + ready.Message
	}
}

// TestNamespaceWithoutRights: where the operator lacks permissions, only the Scanners of that namespace stop, and report what to do. They
// continue by themselves when the permissions are granted. Namespaces that are not watched stay unchanged.
func TestNamespaceWithoutRights(t *testing.T) {
	c := restricted(t)
	for _, namespace := range []string{"bank", "blind", "elsewhere"} {
		c.hasScanner(namespace)
	}
	c.runs("a")
	c.grants(system, roleOf)
	c.grants("shop", roleOf)
	c.grants("elsewhere", roleOf)
	c.roleWithout("without-pods", "pods", "list", "watch")
	c.grants("blind", "without-pods")
	manager := c.startsWith([]string{"SCANNER_WATCH_NAMESPACES=bank,blind,shop"}, "namespaced", t.TempDir())
	c.becomesReady(manager)
	c.covered(1)

	command := "kubectl -n %s create rolebinding scanner-operator-manager --clusterrole=scanner-operator-manager --serviceaccount=scanner-operator-system:scanner-operator-manager"
	c.Eventually(c.readyOf("blind"), patience, "250ms").Should(HavePrefix("stalled MissingRights: the operator may not list, watch pods in namespace blind: "))
	c.Eventually(manager.log.String, patience, "250ms").Should(And(ContainSubstring("Rights are missing"), ContainSubstring("scanners.scanner-operator.io"),
		ContainSubstring(command[:len("kubectl -n ")]+"bank"+command[len("kubectl -n %s"):])), "the Scanner there cannot even be read")
	c.Expect(c.readyOf("bank")()).To(Equal("nothing"))
	var scans v1alpha1.ImageScanList
	c.Expect(c.client.List(t.Context(), &scans, client.InNamespace("blind"))).To(Succeed())
	c.Expect(scans.Items).To(BeEmpty())

	c.grants("bank", roleOf)
	c.grants("blind", roleOf)
	c.coveredIn("bank", 1)
	c.coveredIn("blind", 1)
	c.Expect(c.readyOf("elsewhere")()).To(Equal("nothing"), "it is not watched")

	// A permission is revoked while the manager runs.
	c.Expect(c.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: roleOf}})).To(Succeed())
	c.roleWithout("without-scans", "imagescans", "create")
	c.grants("shop", "without-scans")
	c.runs("b")
	c.Eventually(c.readyOf("shop"), patience, "250ms").Should(HavePrefix("stalled MissingRights: the operator may not create imagescans.scanner-operator.io in namespace shop: "))
	c.runsIn("bank", "b")
	c.coveredIn("bank", 2)
	c.grants("shop", roleOf)
	c.covered(2)
	c.Expect(manager.ended).NotTo(BeClosed(), "all the while it was the same process")
}

// TestMissingRuleEverywhere: a manager of all namespaces reports what its role lacks, and continues when it is granted.
func TestMissingRuleEverywhere(t *testing.T) {
	c := restricted(t)
	c.runs("a")
	c.roleWithout("without-jobs", "jobs", "create")
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Subjects: subjects(), RoleRef: toClusterRole("without-jobs")}
	c.creates(binding)
	manager := c.starts("everywhere", t.TempDir())
	c.becomesReady(manager)
	c.covered(1)
	c.Eventually(c.readyOf("shop"), patience, "250ms").Should(HavePrefix("stalled MissingRights: the operator may not create jobs.batch in all namespaces: "))
	c.creates(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: roleOf}, Subjects: subjects(), RoleRef: toClusterRole(roleOf)})
	c.Eventually(c.readyOf("shop"), patience, "250ms").Should(HavePrefix("Scanned: "))
}

// TestScannersStayKnown: a manager that may not read Scanners when it starts does not treat them as deleted.
func TestScannersStayKnown(t *testing.T) {
	c := restricted(t)
	c.runs("a")
	c.grants(system, roleOf)
	c.grants("shop", roleOf)
	dir := t.TempDir()
	environment := []string{"SCANNER_WATCH_NAMESPACES=shop"}
	manager := c.startsWith(environment, "first", dir)
	c.becomesReady(manager)
	c.covered(1)
	c.signals(manager, os.Interrupt)
	c.ends(manager)
	c.Expect(c.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: roleOf}})).To(Succeed())
	// Both verbs must be missing: an API server streams lists to clients that may only watch.
	c.roleWithout("without-scanners", "scanners", "list", "watch")
	c.grants("shop", "without-scanners")
	known := scannersIn(t, dir)
	c.Expect(known).To(HaveLen(1))
	manager = c.startsWith(environment, "second", dir)
	c.Eventually(manager.log.String, patience, "250ms").Should(ContainSubstring("the operator may not list, watch scanners.scanner-operator.io in namespace shop"))
	// The manager checks for deleted Scanners when it begins to lead.
	c.Consistently(func() []string { return scannersIn(t, dir) }, "5s", "500ms").Should(Equal(known))
	var scans v1alpha1.ImageScanList
	c.Expect(c.client.List(t.Context(), &scans, client.InNamespace("shop"))).To(Succeed())
	c.Expect(scans.Items).To(HaveLen(1), "an ImageScan whose Scanner cannot be read has an owner all the same")
}

// TestWatchedReader: objects of namespaces that are not watched are not found.
func TestWatchedReader(t *testing.T) {
	g := NewWithT(t)
	there := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		&v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}, &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "b"}},
	).Build()
	some := watchedReader{there, []string{"shop"}}
	var scanner v1alpha1.Scanner
	g.Expect(some.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, &scanner)).To(Succeed())
	g.Expect(some.Get(t.Context(), client.ObjectKey{Namespace: "bank", Name: "b"}, &scanner)).To(Satisfy(apierrors.IsNotFound))
	for namespace, want := range map[string]int{"shop": 1, "bank": 0} {
		var scanners v1alpha1.ScannerList
		g.Expect(some.List(t.Context(), &scanners, client.InNamespace(namespace))).To(Succeed())
		g.Expect(scanners.Items).To(HaveLen(want), namespace)
	}
	g.Expect(watchedReader{there, nil}.Get(t.Context(), client.ObjectKey{Namespace: "bank", Name: "b"}, &scanner)).To(Succeed())
}

// scannersIn returns the UIDs of the Scanners in a store.
func scannersIn(t *testing.T, dir string) []string {
	t.Helper()
	db, err := store.OpenSQLiteReadOnly(filepath.Join(dir, storeFile))
	must(t, err)
	defer db.Close()
	known, err := db.Scanners(t.Context())
	must(t, err)
	return known
}
