package cleanup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/onsi/gomega"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// workerLabels returns the labels of a worker Job.
func workerLabels(component string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/managed-by": "scanner-operator", "app.kubernetes.io/component": component,
	}
}

func aJob(namespace, name string, labels map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "worker"}},
		}}},
	}
}

// aManager creates a manager's Deployment with one replica, of which ready are ready.
func (p *testCluster) aManager(ready int32) *appsv1.Deployment {
	p.t.Helper()
	labels := map[string]string{"app": "manager"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.manager(), Labels: managerLabels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager"}}},
			},
		},
	}
	p.create(deployment)
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: ready, AvailableReplicas: ready}
	p.must(p.client.Status().Update(p.t.Context(), deployment))
	return deployment
}

// manager returns a name of the Deployment that is unique to the test.
func (p *testCluster) manager() string { return "manager-of-" + p.namespace }

// ownObject names an object of the operator.
func (p *testCluster) ownObject(o client.Object) client.Object {
	o.SetNamespace(p.namespace)
	o.SetName("own")
	return o
}

// TestCleanupJobs: the operator's Jobs are deleted with their pods. Jobs that match only in part are not.
func TestCleanupJobs(t *testing.T) {
	p := newTestCluster(t)
	other := workerLabels("catalog")
	other["app.kubernetes.io/managed-by"] = "another"
	own := []client.Object{aJob(p.namespace, "scan-catalog-abc123", workerLabels("catalog")), aJob(p.namespace, "scan-match-abc123", workerLabels("match"))}
	theirs := []client.Object{
		aJob(p.namespace, "build", workerLabels("catalog")), aJob(p.namespace, "scan-catalog-x", other), aJob(p.namespace, "scan-match-x", workerLabels("catalog")),
		aJob(p.namespace, "scan-catalog-y", nil),
	}
	p.create(own...)
	p.create(theirs...)

	both := p.expandNamespace("Job @/scan-catalog-abc123: deleted\nJob @/scan-match-abc123: deleted\n")
	output, err := p.runCleanup(true, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal(strings.ReplaceAll(both, "deleted", "would delete")))
	p.Expect(p.gone(own[0])).To(BeFalse(), "it only said so")

	output, err = p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal(both))
	for _, job := range own {
		p.Expect(p.gone(job)).To(BeTrue(), job.GetName())
	}
	for _, job := range theirs {
		p.Expect(p.gone(job)).To(BeFalse(), job.GetName()+" is not the operator's")
	}
}

// TestCleanupOwnObjects: the objects that only a manager needs are deleted when no manager runs. Objects that hold data are deleted only on
// request. A failed deletion does not stop the others.
func TestCleanupOwnObjects(t *testing.T) {
	p := newTestCluster(t)
	claim := p.ownObject(&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}})
	secret, configMap, lease := p.ownObject(&corev1.Secret{}), p.ownObject(&corev1.ConfigMap{}), p.ownObject(&coordinationv1.Lease{})
	theirs := p.ownObject(&corev1.Secret{})
	theirs.SetName("theirs")
	p.create(claim, secret, configMap, lease, theirs)
	core := corev1.SchemeGroupVersion
	claims := []ObjectRef{{core.WithKind("PersistentVolumeClaim"), "own"}}
	own := func(c *Cleaner) {
		c.ManagerObjects = []ObjectRef{
			{core.WithKind("Secret"), "own"}, {core.WithKind("Secret"), "missing"}, {core.WithKind("ConfigMap"), "own"},
			{coordinationv1.SchemeGroupVersion.WithKind("Lease"), "own"},
		}
	}

	deployment := p.aManager(1)
	_, err := p.runCleanup(false, interceptor.Funcs{}, own)
	p.Expect(err).To(MatchError(ContainSubstring("--stop-manager")), "a manager that runs needs them")
	p.Expect(p.gone(secret)).To(BeFalse())
	p.delete(deployment)

	_, err = p.runCleanup(false, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if o.GetObjectKind().GroupVersionKind().Kind == "Secret" {
			return errors.New("you may not")
		}
		return c.Delete(ctx, o, opts...)
	}}, own)
	p.Expect(err).To(MatchError(p.expandNamespace("Secret @/own: you may not\nSecret @/missing: you may not")))
	p.Expect(p.gone(configMap) && p.gone(lease)).To(BeTrue())

	_, err = p.runCleanup(false, interceptor.Funcs{}, func(c *Cleaner) { own(c); c.Namespaces = []string{"elsewhere"} })
	p.must(err)
	p.Expect(p.gone(secret)).To(BeFalse(), "the operator's namespace was not named")

	output, err := p.runCleanup(false, interceptor.Funcs{}, own)
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("Secret @/own: deleted\n")))
	p.Expect(p.gone(secret)).To(BeTrue())
	p.Expect(p.gone(theirs) || p.gone(claim)).To(BeFalse())

	output, err = p.runCleanup(false, interceptor.Funcs{}, func(c *Cleaner) { c.PVCs = claims })
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("PersistentVolumeClaim @/own: deleted\n")))
}

// TestCleanupStopsManager: the manager's pods must have ended before its objects are removed. If they do not end, the error names them, and
// the objects stay.
func TestCleanupStopsManager(t *testing.T) {
	p := newTestCluster(t)
	deployment := p.aManager(1)
	pod := aPod(p.namespace, "manager-1", foreign)
	pod.Labels = map[string]string{"app": "manager"}
	secret := p.ownObject(&corev1.Secret{})
	p.create(pod, secret)
	stop := func(c *Cleaner) {
		c.StopManager, c.Timeout = true, 2*time.Second
		c.ManagerObjects = []ObjectRef{{corev1.SchemeGroupVersion.WithKind("Secret"), "own"}}
	}
	output, err := p.runCleanup(true, interceptor.Funcs{}, stop)
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("Deployment @/manager-of-@: would scale to zero\nSecret @/own: would delete\n")))

	output, err = p.runCleanup(false, interceptor.Funcs{}, stop)
	p.Expect(err).To(MatchError(And(ContainSubstring(`["manager-1 on node `), ContainSubstring("have not ended in 2s"))))
	p.Expect(output).To(Equal(p.expandNamespace("Deployment @/manager-of-@: scaled to zero\n")))
	p.must(p.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
	p.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(0)))

	pod.Finalizers = nil
	p.must(p.client.Update(t.Context(), pod))
	p.delete(pod)
	output, err = p.runCleanup(false, interceptor.Funcs{}, stop)
	p.must(err)
	p.Expect(output).To(ContainSubstring(p.expandNamespace("Secret @/own: deleted\n")))

	output, err = p.runCleanup(true, interceptor.Funcs{}, func(c *Cleaner) { c.Home = "default" })
	p.must(err)
	p.Expect(output).To(ContainSubstring(p.expandNamespace("Deployment @/manager-of-@: this is a manager; if it is the one to stop, set --operator-namespace=@\n")))

	p.delete(deployment)
	output, err = p.runCleanup(false, interceptor.Funcs{}, stop)
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("Deployment @/manager-of-@: there is none, so there is no manager to stop\n")))
}

// TestCleanupScanners: Scanners are deleted. A working manager gets until the timeout to release them; their finalizers are removed after
// that, or at once without a working manager.
func TestCleanupScanners(t *testing.T) {
	p := newTestCluster(t)
	for _, ready := range []int32{0, 1} {
		deployment := p.aManager(ready)
		scanner := aScanner(p.namespace, "all", v1alpha1.FinalizerManifests)
		p.create(scanner)
		output, err := p.runCleanup(false, interceptor.Funcs{}, func(c *Cleaner) { c.Scanners, c.Timeout = true, 2*time.Second })
		p.Expect(err).To(MatchError(ContainSubstring("the manager was not stopped")))
		p.Expect(output).To(HavePrefix(p.expandNamespace("Scanner @/all: deleted\n")))
		p.Expect(strings.Contains(output, "did not release it in 2s")).To(Equal(ready == 1), output)
		p.Expect(output).To(HaveSuffix(p.expandNamespace("Scanner @/all: removed " + v1alpha1.FinalizerManifests + "\n")))
		p.Expect(p.gone(scanner)).To(BeTrue())
		p.delete(deployment)
	}
}

// TestCleanupResults: ImageScans are deleted on request.
func TestCleanupResults(t *testing.T) {
	p := newTestCluster(t)
	scan := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
		Spec: v1alpha1.ImageScanSpec{
			Digest: "sha256:" + strings.Repeat("0", 64), Platform: "linux/amd64", ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "all"},
		},
	}
	p.create(scan)
	output, err := p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(BeEmpty())
	output, err = p.runCleanup(false, interceptor.Funcs{}, func(c *Cleaner) { c.Results = true })
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("ImageScan @/web: deleted\n")))
	p.Expect(p.gone(scan)).To(BeTrue())
}

// TestCleanupCRDs: the CustomResourceDefinitions are deleted only when no manager runs, since a manager cannot work without them.
func TestCleanupCRDs(t *testing.T) {
	p := newTestCluster(t)
	var deleted []string
	kinds := interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
		deleted = append(deleted, o.GetName()) // the shared API server must keep them
		return nil
	}}
	all := func(c *Cleaner) { c.CRDs = true }
	deployment := p.aManager(1)
	_, err := p.runCleanup(false, kinds, all)
	p.Expect(err).To(MatchError(ContainSubstring("the manager was not stopped")))
	p.Expect(deleted).To(BeEmpty())
	p.delete(deployment)
	_, err = p.runCleanup(false, kinds, all)
	p.must(err)
	p.Expect(deleted).To(ConsistOf("scanners.scanner-operator.io", "clusterscanners.scanner-operator.io", "imagescans.scanner-operator.io",
		"vulnerabilityexceptions.scanner-operator.io", "clustervulnerabilityexceptions.scanner-operator.io"))
}

// TestCleanupForbidden: a missing permission is named in the error and blocks only the steps that need it.
func TestCleanupForbidden(t *testing.T) {
	p := newTestCluster(t)
	pod := aPod(p.namespace, "held", releaseOf("scanner"))
	p.create(pod)
	_, err := p.runCleanup(false, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return apierrors.NewForbidden(appsv1.Resource("deployments"), key.Name, errors.New("no right"))
	}}, func(c *Cleaner) { c.StopManager = true })
	p.Expect(err).To(MatchError(ContainSubstring(p.expandNamespace(`deployments.apps "manager-of-@" is forbidden`))))
	p.Expect(p.finalizers(pod)).To(BeEmpty())
}

// TestCleanupNamesPermissions: cleanup names the ClusterRoleBindings that an earlier installation has left, also beside a newer one: of accounts of its
// namespace, or of a manager in any namespace, that do not exist; and those of versions that OLM has removed. Others are not named.
func TestCleanupNamesPermissions(t *testing.T) {
	p := newTestCluster(t)
	binding := func(name, namespace, account string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: p.namespace + "-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "any"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		}
	}
	p.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "there"}},
		binding("left", p.namespace, "gone"), binding("used", p.namespace, "there"), binding("other", "default", "gone"))
	elsewhere := binding("elsewhere", p.namespace+"-before", p.manager())
	removed, present := binding("removed", p.namespace, "there"), binding("present", p.namespace, "there")
	for version, b := range map[string]*rbacv1.ClusterRoleBinding{"removed": removed, "present": present} {
		b.Labels = map[string]string{"olm.owner": version, "olm.owner.namespace": p.namespace, "olm.owner.kind": "ClusterServiceVersion"}
	}
	p.create(elsewhere, removed, present)
	olm := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if o.GetObjectKind().GroupVersionKind().Kind == "ClusterServiceVersion" && key.Name == "present" {
			return nil
		}
		return c.Get(ctx, key, o, options...)
	}}
	all := []string{
		p.expandNamespace("ClusterRoleBinding @-left: gives the permissions of ClusterRole any to ServiceAccount @/gone, which does not exist, " +
			"so to whoever creates it: kubectl delete clusterrolebinding @-left"),
		p.expandNamespace("ClusterRoleBinding @-elsewhere: gives the permissions of ClusterRole any to ServiceAccount @-before/manager-of-@, " +
			"which does not exist, so to whoever creates it: kubectl delete clusterrolebinding @-elsewhere"),
		p.expandNamespace("ClusterRoleBinding @-removed: gives the permissions of ClusterRole any to ServiceAccount @/there, although OLM made it for " +
			"ClusterServiceVersion removed, which does not exist: kubectl delete clusterrolebinding @-removed"),
	}
	named := func(change func(*Cleaner)) (mine []string) {
		output, err := p.runCleanup(false, olm, change)
		p.must(err)
		for line := range strings.Lines(output) {
			if strings.HasPrefix(line, "ClusterRoleBinding "+p.namespace) {
				mine = append(mine, strings.TrimSpace(line))
			}
		}
		return mine
	}
	p.Expect(named(nil)).To(ConsistOf(all))
	deployment := p.aManager(1)
	p.Expect(named(func(c *Cleaner) { c.Permissions = true })).To(ConsistOf(all), "a manager is installed")
	p.delete(deployment, elsewhere)
}
