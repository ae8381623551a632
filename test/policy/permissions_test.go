package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RBAC denies these requests with a stolen token, independently of the policies.
func TestStolenTokenIsDeniedByRBAC(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	tenant := metav1.ObjectMeta{Namespace: shop, Name: "any"}
	own := metav1.ObjectMeta{Namespace: home, Name: "any"}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "scanner-operator-notifier"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: tenant, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}
	pod := somePod("any")
	for name, err := range map[string]error{
		"read a tenant's Secret":         c.thief.Get(ctx, client.ObjectKey{Namespace: shop, Name: "any"}, &corev1.Secret{}),
		"list Secrets":                   c.thief.List(ctx, &corev1.SecretList{}),
		"list its namespace's Secrets":   c.thief.List(ctx, &corev1.SecretList{}, client.InNamespace(home)),
		"read another Secret of its own": c.thief.Get(ctx, client.ObjectKey{Namespace: home, Name: "any"}, &corev1.Secret{}),
		"read ConfigMaps":                c.thief.List(ctx, &corev1.ConfigMapList{}),
		"create a tenant's Secret":       c.thief.Create(ctx, &corev1.Secret{ObjectMeta: tenant}),
		"create a tenant's ConfigMap":    c.thief.Create(ctx, &corev1.ConfigMap{ObjectMeta: tenant}),
		"create a pod":                   c.thief.Create(ctx, pod),
		"update a pod":                   c.thief.Update(ctx, pod),
		"delete a pod":                   c.thief.Delete(ctx, pod),
		"patch a pod's status":           c.thief.Status().Patch(ctx, pod.DeepCopy(), merge(`{"status":{"message":"x"}}`)),
		"evict a pod":                    c.thief.SubResource("eviction").Create(ctx, pod.DeepCopy(), somePod("any")),
		"bind a role":                    c.thief.Create(ctx, binding),
		"read roles":                     c.thief.List(ctx, &rbacv1.RoleList{}),
		"ask for a token":                c.thief.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{}),
		"create a ServiceAccount":        c.thief.Create(ctx, &corev1.ServiceAccount{ObjectMeta: own}),
		"list Jobs":                      c.thief.List(ctx, &batchv1.JobList{}),
		"change a Job":                   c.thief.Patch(ctx, &batchv1.Job{ObjectMeta: tenant}, merge(`{"spec":{"suspend":true}}`)),
		"delete all Jobs of a namespace": c.thief.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(shop)),
		"delete a claim":                 c.thief.Delete(ctx, claim("scanner-operator-store")),
		"label a namespace":              c.thief.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, merge(`{"metadata":{"labels":{"a":"b"}}}`)),
		"delete a namespace":             c.thief.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}),
		"except findings":                c.thief.Create(ctx, anException(shop, "any")),
		"except findings everywhere":     c.thief.Create(ctx, anException("", "any")),
		"change an exception":            c.thief.Patch(ctx, anException(shop, "any"), merge(`{"spec":{"images":null}}`)),
		"change one for the cluster":     c.thief.Patch(ctx, anException("", "any"), merge(`{"spec":{"images":null}}`)),
		"remove an exception":            c.thief.Delete(ctx, anException(shop, "any")),
		"change a node":                  c.thief.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, merge(`{"spec":{"unschedulable":true}}`)),
	} {
		t.Run(name, func(t *testing.T) { deniedByRBAC(t, err) })
	}
}

// The API server denies these accesses, queried by access reviews because they have no object to try.
func TestStolenTokenAccessReviews(t *testing.T) {
	c := sharedCluster(t)
	for _, may := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "create", Resource: "pods", Subresource: "attach"},
		{Verb: "create", Resource: "pods", Subresource: "portforward"},
		{Verb: "create", Resource: "nodes", Subresource: "proxy"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy"},
		{Verb: "get", Resource: "pods", Subresource: "log"},
		{Verb: "impersonate", Resource: "users"},
		{Verb: "impersonate", Resource: "serviceaccounts"},
		{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
		{Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Verb: "patch", Group: "apps", Resource: "deployments"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &may}}
		if err := c.thief.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			t.Errorf("the manager's token may %s %s/%s: %s", may.Verb, may.Resource, may.Subresource, review.Status.Reason)
		}
	}
}

// In its own namespace, the manager can create only the objects that the operator needs, and no Secret into which the API server writes
// a token.
func TestStolenTokenCannotMakeOtherObjects(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	secret := func(name string, kind corev1.SecretType, annotations map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name, Annotations: annotations}, Type: kind}
		if kind == corev1.SecretTypeTLS {
			s.Data = map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil}
		}
		return s
	}
	create := func(o client.Object) error { return c.thief.Create(ctx, o, client.DryRunAll) }
	for _, allowed := range []client.Object{
		secret("scanner-operator-authority", "", nil),
		secret("scanner-operator-notifier-serving", corev1.SecretTypeTLS, nil),
		claim("scanner-operator-vulnerability-database"),
	} {
		if err := create(allowed); err != nil {
			t.Errorf("the manager may not make %s: %v", allowed.GetName(), err)
		}
	}
	token := secret("scanner-operator-authority", corev1.SecretTypeServiceAccountToken,
		map[string]string{corev1.ServiceAccountNameKey: "scanner-operator-notifier"})
	denied(t, create(token), "secrets", "type: the scanner-operator's manager creates no Secret of this type")
	denied(t, create(secret("scanner-notifier-trust", "", nil)), "secrets", "metadata.name: the scanner-operator's manager creates no Secret of this name")
	denied(t, create(claim("any")), "claims", "metadata.name: the scanner-operator's manager creates no PersistentVolumeClaim of this name")
	trust := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "scanner-notifier-trust"}}
	denied(t, c.privileged.Create(ctx, trust, client.DryRunAll), "configmaps", "metadata.name: the scanner-operator's manager creates no ConfigMap of this name")
	for _, name := range []string{"scanner-operator-ca", "scanner-operator-deliveries"} {
		own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
		if err := c.privileged.Create(ctx, own, client.DryRunAll); err != nil {
			t.Errorf("the manager may not make its ConfigMap %s: %v", name, err)
		}
	}
	certain := claim("scanner-operator-vulnerability-database")
	certain.Spec.VolumeName = "somebodys"
	denied(t, create(certain), "claims", "spec: the scanner-operator's manager requests an empty volume, and names no existing one")
	copied := claim("scanner-operator-vulnerability-database")
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "scanner-operator-store"}
	denied(t, create(copied), "claims", "spec: the scanner-operator's manager requests an empty volume, and names no existing one")
}

// If RBAC allows the manager to create objects in all namespaces, as with OLM, the policies still restrict it to its own namespace.
func TestStolenTokenMakesNothingElsewhere(t *testing.T) {
	c := sharedCluster(t)
	elsewhere := claim("scanner-operator-vulnerability-database")
	elsewhere.Namespace = shop
	for policy, object := range map[string]client.Object{
		"secrets":    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "scanner-operator-authority"}},
		"configmaps": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "scanner-operator-ca"}},
		"claims":     elsewhere,
	} {
		denied(t, c.privileged.Create(t.Context(), object, client.DryRunAll), policy, "in its own namespace only")
	}
}

// The manager can delete only its own Jobs.
func TestStolenTokenCannotRemoveOthersJobs(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	aJob := func(name string, labels map[string]string) *batchv1.Job {
		job := golden(t, "catalog-job-private.yaml")
		job.Name, job.Labels = name, labels
		if err := c.admin.Create(ctx, job); err != nil {
			t.Fatal(err)
		}
		return job
	}
	ours := map[string]string{"app.kubernetes.io/managed-by": "scanner-operator"}
	remove := func(job *batchv1.Job) error {
		return c.thief.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	}
	denied(t, remove(aJob("backup", map[string]string{"app": "web"})), "existing-jobs", "deletes only its own Jobs")
	denied(t, remove(aJob("backup-labelled", ours)), "existing-jobs", "deletes only its own Jobs")
	denied(t, remove(aJob("scan-catalog-unlabelled", map[string]string{"app": "web"})), "existing-jobs", "deletes only its own Jobs")
	if err := remove(aJob("scan-catalog-abcdefghij", ours)); err != nil {
		t.Errorf("the manager may not remove its own Job: %v", err)
	}
	// Even with all RBAC permissions, the manager cannot change a Job.
	changed := aJob("scan-catalog-changed", ours)
	changed.Spec.Suspend = ptr.To(true)
	denied(t, c.privileged.Update(ctx, changed), "existing-jobs", "the scanner-operator's manager changes no Job")
}

// With any permissions, the manager cannot change what is scanned or which receivers get messages.
func TestStolenTokenCannotChangeScanners(t *testing.T) {
	c := sharedCluster(t)
	for _, scanner := range []*unstructured.Unstructured{aScanner("scanner"), aClusterScanner("scanner")} {
		c.requireUnchangeable(t, scanner)
	}
}

// requireUnchangeable creates a Scanner or ClusterScanner, and requires that the manager can change nothing of it but finalizers and status.
func (c *cluster) requireUnchangeable(t *testing.T, scanner *unstructured.Unstructured) {
	t.Helper()
	ctx := t.Context()
	if err := c.admin.Create(ctx, scanner); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"suspend":true}}`:                             "spec: the scanner-operator's manager may not change it",
		`{"metadata":{"labels":{"a":"b"}}}`:                     "metadata: the scanner-operator's manager may not change",
		`{"metadata":{"annotations":{"a":"b"}}}`:                "metadata: the scanner-operator's manager may not change",
		`{"metadata":{"finalizers":["evil.example.com/stay"]}}`: "metadata.finalizers: the scanner-operator's manager may change only",
	} {
		denied(t, c.privileged.Patch(ctx, scanner.DeepCopy(), merge(patch), client.DryRunAll), "scanners", want)
	}
	for what, allowed := range map[string]error{
		"finalizer": c.privileged.Patch(ctx, scanner.DeepCopy(), merge(`{"metadata":{"finalizers":["example.com/keep","scanner-operator.io/pod-finalizers","scanner-operator.io/backend-manifests"]}}`)),
		"status":    c.thief.Status().Patch(ctx, scanner.DeepCopy(), merge(`{"status":{"observedGeneration":1}}`)),
	} {
		if allowed != nil {
			t.Errorf("the manager may not change the %s of a %s: %v", what, scanner.GetKind(), allowed)
		}
	}
}

// The manager can read its own two Secrets and no others.
func TestManagerReadsItsSecrets(t *testing.T) {
	c := sharedCluster(t)
	names := []string{"scanner-operator-authority", "scanner-operator-notifier-serving"}
	for _, name := range append(slices.Clone(names), "somebodys") {
		made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
		if err := c.admin.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.admin.Delete(background, made); err != nil {
				t.Error(err)
			}
		})
		err := c.thief.Get(t.Context(), client.ObjectKeyFromObject(made), &corev1.Secret{})
		if slices.Contains(names, name) {
			if err != nil {
				t.Errorf("the manager may not read %s: %v", name, err)
			}
			continue
		}
		deniedByRBAC(t, err)
	}
}

// Users who may edit Scanners, or everything else in a namespace, cannot create exceptions. Users with the role for exceptions can
// create them only where the role is bound.
func TestPermissionsForExceptions(t *testing.T) {
	c := sharedCluster(t)
	bind := func(user, namespace, role string) client.Client {
		t.Helper()
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := c.admin.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		as, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return as
	}
	bind("developer", shop, "scanner-operator-edit")
	developer, officer := bind("developer", shop, "scanner-operator-view"), bind("officer", shop, "scanner-operator-except")
	if err := officer.Create(t.Context(), anException(shop, "granted")); err != nil {
		t.Errorf("who may except may not: %v", err)
	}
	if err := developer.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "granted"}, anException(shop, "granted")); err != nil {
		t.Errorf("a viewer of findings may not see exceptions: %v", err)
	}
	deniedByRBAC(t, developer.Create(t.Context(), anException(shop, "any")))
	deniedByRBAC(t, developer.Delete(t.Context(), anException(shop, "granted")))
	deniedByRBAC(t, officer.Create(t.Context(), anException(home, "any")))
	deniedByRBAC(t, officer.Create(t.Context(), anException("", "any")))
	var roles rbacv1.ClusterRoleList
	if err := c.admin.List(t.Context(), &roles); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			changes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			names := slices.Contains(rule.Resources, "vulnerabilityexceptions") || slices.Contains(rule.Resources, "clustervulnerabilityexceptions")
			if changes && names && (role.Name != "scanner-operator-except" || len(role.Labels) > 0) {
				t.Errorf("%s with the labels %v permits exceptions", role.Name, role.Labels)
			}
		}
	}
}

// ClusterScanners are for those to whom an administrator grants one of two roles, since they concern the whole cluster: no other role has
// permissions on them.
func TestPermissionsForClusterScanners(t *testing.T) {
	c := sharedCluster(t)
	bind := func(user string, roles ...string) client.Client {
		t.Helper()
		for _, role := range roles {
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			}
			if err := c.admin.Create(t.Context(), binding); err != nil {
				t.Fatal(err)
			}
		}
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		as, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return as
	}
	team := bind("team", "scanner-operator-edit", "scanner-operator-view")
	viewer, admin := bind("cluster-viewer", "scanner-operator-cluster-view"), bind("cluster-admin-of-scanners", "scanner-operator-cluster-admin")
	made := aClusterScanner("granted")
	if err := admin.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if err := viewer.Get(t.Context(), client.ObjectKeyFromObject(made), aClusterScanner("granted")); err != nil {
		t.Errorf("scanner-operator-cluster-view: %v", err)
	}
	deniedByRBAC(t, viewer.Delete(t.Context(), made.DeepCopy()))
	deniedByRBAC(t, team.Get(t.Context(), client.ObjectKeyFromObject(made), aClusterScanner("granted")))
	deniedByRBAC(t, team.Create(t.Context(), aClusterScanner("any")))
	made.SetFinalizers(nil)
	if err := errors.Join(admin.Update(t.Context(), made), admin.Delete(t.Context(), made)); err != nil {
		t.Errorf("scanner-operator-cluster-admin: %v", err)
	}
	var roles rbacv1.ClusterRoleList
	if err := c.admin.List(t.Context(), &roles); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			ours := slices.Contains([]string{"scanner-operator-manager-cluster", "scanner-operator-cluster-view", "scanner-operator-cluster-admin"}, role.Name)
			if slices.Contains(rule.Resources, "clusterscanners") && (!ours || len(role.Labels) > 0) {
				t.Errorf("%s with the labels %v permits %q of ClusterScanners", role.Name, role.Labels, rule.Verbs)
			}
		}
	}
}

// The manager can write the status of exceptions.
func TestManagerWritesExceptionsStatus(t *testing.T) {
	c := sharedCluster(t)
	for what, o := range map[string]*unstructured.Unstructured{"a namespace": anException(shop, "status"), "the cluster": anException("", "status")} {
		if err := c.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		written := o.DeepCopy()
		if err := c.thief.Status().Patch(t.Context(), written, merge(`{"status":{"findings":1},"spec":{"reason":"evil"}}`)); err != nil {
			t.Errorf("an exception of %s: the manager may not write the status: %v", what, err)
		}
		if reason, _, _ := unstructured.NestedString(written.Object, "spec", "reason"); reason != "patched" {
			t.Errorf("an exception of %s: the manager has changed the reason into %q", what, reason)
		}
	}
}

// Permissions for namespaced and for cluster-scoped resources are in separate roles, so that the former can be granted in selected
// namespaces.
func TestNamespacedPermissionsAreSeparate(t *testing.T) {
	c := sharedCluster(t)
	for name, namespaced := range map[string]bool{manager: true, manager + "-cluster": false} {
		var role rbacv1.ClusterRole
		if err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				kind, _, _ := strings.Cut(resource, "/")
				mapper := c.admin.RESTMapper()
				found, err := mapper.KindFor(schema.GroupVersionResource{Group: rule.APIGroups[0], Resource: kind})
				if err != nil {
					t.Fatal(err)
				}
				mapping, err := mapper.RESTMapping(found.GroupKind())
				if err != nil {
					t.Fatal(err)
				}
				if got := mapping.Scope.Name() == meta.RESTScopeNameNamespace; got != namespaced {
					t.Errorf("ClusterRole %s has %s: that it is in namespaces is %v, want %v", name, resource, got, namespaced)
				}
			}
		}
	}
}
