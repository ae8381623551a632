package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/scanner-operator/scanner-operator/test/apiserver"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// While the API server throttles, manager and notifier get the status 429 for their requests, and others do not.
func TestThrottling(t *testing.T) {
	server, err := apiserver.Start("../..", os.Getenv("KUBEBUILDER_ASSETS"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	file, err := server.Kubeconfig(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no client-side rate limit
	requests, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	allowTokenReviews(t, server)

	f := throttling(server.Client, requests.AuthenticationV1().RESTClient())
	if err := f.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scanner-operator-manager", notifierAccount} {
		requireReason(t, requests, name, metav1.StatusReasonTooManyRequests)
	}
	requireReason(t, requests, "default", metav1.StatusReasonForbidden)
	for range 2 { // ending it again changes nothing
		if err := f.end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	requireReason(t, requests, "scanner-operator-manager", metav1.StatusReasonForbidden)
	requireReason(t, requests, notifierAccount, metav1.StatusReasonForbidden)
}

// allowTokenReviews gives the notifier the permission that it has in a cluster.
func allowTokenReviews(t *testing.T, server *apiserver.Server) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: notifierAccount},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: notifierAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: notifierAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: scenario.SystemNamespace, Name: notifierAccount}},
	}
	if err := server.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := server.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

// requireReason waits until requests of a ServiceAccount of the operator's namespace for a ConfigMap fail for a reason. None has the permission, so
// the API server refuses the requests that it does not throttle.
func requireReason(t *testing.T, requests kubernetes.Interface, name string, want metav1.StatusReason) {
	t.Helper()
	err := wait.Eventually(t.Context(), time.Minute, wait.Often, func(ctx context.Context) error {
		err := requests.CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").Name("any").MaxRetries(0).
			SetHeader("Impersonate-User", "system:serviceaccount:"+scenario.SystemNamespace+":"+name).Do(ctx).Error()
		if got := apierrors.ReasonForError(err); got != want {
			return fmt.Errorf("%s: want the reason %s, got %s (%w)", name, want, got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
