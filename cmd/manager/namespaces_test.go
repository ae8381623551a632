package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	account     = "scanner-operator-manager"
	roleOf      = "scanner-operator-manager"
	clusterRole = "scanner-operator-manager-cluster"
)

// operatorAccount returns the operator's ServiceAccount as a user. It has no permissions yet.
func operatorAccount(system string) envtest.User {
	return envtest.User{Name: "system:serviceaccount:" + system + ":" + account, Groups: []string{"system:serviceaccounts"}}
}

// grantRoles grants the operator the permissions of config/rbac for its own namespace and for cluster-wide objects. In other namespaces it has
// none until somebody binds them there.
func (c *cluster) grantRoles() {
	c.t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	c.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for range 2 {
		var role rbacv1.ClusterRole
		c.Expect(documents.Decode(&role)).To(Succeed())
		c.Expect(client.IgnoreAlreadyExists(c.client.Create(c.t.Context(), &role))).To(Succeed()) // tests share the API server
	}
	var home rbacv1.Role
	c.Expect(documents.Decode(&home)).To(Succeed())
	home.Namespace = c.system
	c.create(&home, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "home"}, Subjects: c.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: home.Name},
	}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: c.system}, Subjects: c.subjects(), RoleRef: toClusterRole(clusterRole)})
}

func (c *cluster) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.system, Name: account}}
}

func toClusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// bindRole binds a ClusterRole to the operator in a namespace.
func (c *cluster) bindRole(namespace, role string) {
	c.t.Helper()
	c.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, Subjects: c.subjects(), RoleRef: toClusterRole(role)})
}

// createRoleWithout creates a ClusterRole that has the permissions of the manager's, except some verbs of a resource.
func (c *cluster) createRoleWithout(name, resource string, verbs ...string) {
	c.t.Helper()
	var role rbacv1.ClusterRole
	c.Expect(c.client.Get(c.t.Context(), client.ObjectKey{Name: roleOf}, &role)).To(Succeed())
	role.ObjectMeta = metav1.ObjectMeta{Name: name}
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, resource) {
			role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(v string) bool { return slices.Contains(verbs, v) })
		}
	}
	c.create(&role)
}

// createScanner creates a namespace with a Scanner and a pod.
func (c *cluster) createScanner(namespace string) {
	c.t.Helper()
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	})
	c.createPodIn(namespace, "a")
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

// TestNamespaceWithoutPermissions: where the operator lacks permissions, only the Scanners of that namespace stop, and report what to do. They
// continue by themselves when the permissions are granted. Namespaces that are not watched stay unchanged.
func TestNamespaceWithoutPermissions(t *testing.T) {
	c := newSharedCluster(t, operatorAccount)
	c.grantRoles()
	for _, namespace := range []string{"bank", "blind", "elsewhere"} {
		c.createScanner(namespace)
	}
	c.createPod("a")
	c.bindRole(c.system, roleOf)
	c.bindRole(c.shop, roleOf)
	c.bindRole("elsewhere", roleOf)
	c.createRoleWithout("without-pods", "pods", "list", "watch")
	c.bindRole("blind", "without-pods")
	manager := c.startWith([]string{"SCANNER_WATCH_NAMESPACES=bank,blind," + c.shop}, "namespaced", t.TempDir())
	c.waitReady(manager)
	c.waitScanned(1)

	command := "kubectl -n bank create rolebinding scanner-operator-manager --clusterrole=scanner-operator-manager --serviceaccount=" + c.system + ":scanner-operator-manager"
	c.Eventually(c.readyOf("blind"), waitTimeout, "250ms").Should(HavePrefix("stalled MissingPermissions: the operator may not list, watch pods in namespace blind: "))
	c.Eventually(manager.log.String, waitTimeout, "250ms").Should(And(ContainSubstring("Permissions are missing"), ContainSubstring("scanners.scanner-operator.io"),
		ContainSubstring(command)), "the Scanner there cannot even be read")
	c.Expect(c.readyOf("bank")()).To(Equal("nothing"))
	var scans v1alpha1.ImageScanList
	c.Expect(c.client.List(t.Context(), &scans, client.InNamespace("blind"))).To(Succeed())
	c.Expect(scans.Items).To(BeEmpty())

	c.bindRole("bank", roleOf)
	c.bindRole("blind", roleOf)
	c.waitScannedIn("bank", 1)
	c.waitScannedIn("blind", 1)
	c.Expect(c.readyOf("elsewhere")()).To(Equal("nothing"), "it is not watched")

	// A permission is revoked while the manager runs.
	c.Expect(c.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.shop, Name: roleOf}})).To(Succeed())
	c.createRoleWithout("without-scans", "imagescans", "create")
	c.bindRole(c.shop, "without-scans")
	c.createPod("b")
	c.Eventually(c.readyOf(c.shop), waitTimeout, "250ms").Should(HavePrefix("stalled MissingPermissions: the operator may not create imagescans.scanner-operator.io in namespace " + c.shop + ": "))
	c.createPodIn("bank", "b")
	c.waitScannedIn("bank", 2)
	c.bindRole(c.shop, roleOf)
	c.waitScanned(2)
	c.Expect(manager.ended).NotTo(BeClosed(), "all the while it was the same process")
}

// TestPermissionsOfEarlierInstallation: a manager of some namespaces names the ClusterRoleBinding that permits it more, which it may not read.
func TestPermissionsOfEarlierInstallation(t *testing.T) {
	c := newSharedCluster(t, operatorAccount)
	c.grantRoles()
	c.bindRole(c.system, roleOf)
	c.bindRole(c.shop, roleOf)
	c.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "old-" + c.system}, Subjects: c.subjects(), RoleRef: toClusterRole(roleOf)})
	manager := c.startWith([]string{"SCANNER_WATCH_NAMESPACES=" + c.shop}, "limited", t.TempDir())
	c.waitReady(manager)
	c.Eventually(manager.log.String, waitTimeout, "250ms").Should(And(ContainSubstring("in all namespaces, and needs that in some only"),
		ContainSubstring("allowed by ClusterRoleBinding"), ContainSubstring("old-"+c.system)))
}

// TestMissingRuleEverywhere: a manager of all namespaces reports what its role lacks, and continues when it is granted.
func TestMissingRuleEverywhere(t *testing.T) {
	c := newOwnCluster(t, operatorAccount, definitions)
	c.grantRoles()
	c.createPod("a")
	c.createRoleWithout("without-jobs", "jobs", "create")
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Subjects: c.subjects(), RoleRef: toClusterRole("without-jobs")}
	c.create(binding)
	manager := c.start("everywhere", t.TempDir())
	c.waitReady(manager)
	c.waitScanned(1)
	c.Eventually(c.readyOf(c.shop), waitTimeout, "250ms").Should(HavePrefix("stalled MissingPermissions: the operator may not create jobs.batch in all namespaces: "))
	c.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: roleOf}, Subjects: c.subjects(), RoleRef: toClusterRole(roleOf)})
	c.Eventually(c.readyOf(c.shop), waitTimeout, "250ms").Should(HavePrefix("Scanned: "))
}

// TestUnreadableScannersAreKept: a manager that may not read Scanners when it starts does not treat them as deleted.
func TestUnreadableScannersAreKept(t *testing.T) {
	c := newSharedCluster(t, operatorAccount)
	c.grantRoles()
	c.createPod("a")
	c.bindRole(c.system, roleOf)
	c.bindRole(c.shop, roleOf)
	dir := t.TempDir()
	environment := []string{"SCANNER_WATCH_NAMESPACES=" + c.shop}
	manager := c.startWith(environment, "first", dir)
	c.waitReady(manager)
	c.waitScanned(1)
	c.signal(manager, os.Interrupt)
	c.waitEnded(manager)
	c.Expect(c.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.shop, Name: roleOf}})).To(Succeed())
	// Both verbs must be missing: an API server streams lists to clients that may only watch.
	c.createRoleWithout("without-scanners", "scanners", "list", "watch")
	c.bindRole(c.shop, "without-scanners")
	known := scannersIn(t, dir)
	c.Expect(known).To(HaveLen(1))
	manager = c.startWith(environment, "second", dir)
	c.Eventually(manager.log.String, waitTimeout, "250ms").Should(ContainSubstring("the operator may not list, watch scanners.scanner-operator.io in namespace " + c.shop))
	// The manager checks for deleted Scanners when it begins to lead.
	c.Consistently(func() []string { return scannersIn(t, dir) }, "5s", "500ms").Should(Equal(known))
	var scans v1alpha1.ImageScanList
	c.Expect(c.client.List(t.Context(), &scans, client.InNamespace(c.shop))).To(Succeed())
	c.Expect(scans.Items).To(HaveLen(1), "an ImageScan whose Scanner cannot be read has an owner all the same")
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
