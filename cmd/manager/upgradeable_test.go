package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// accountNamespace is the file from which a pod, and operator-lib, read their namespace.
const accountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// fakeServiceAccountNamespace makes operator-lib believe that it runs in a pod. The test is skipped if this machine does not allow that.
func fakeServiceAccountNamespace(t *testing.T, namespace string) {
	t.Helper()
	if _, err := os.Stat(accountNamespace); err == nil || os.Getuid() != 0 {
		t.Skip("needs to write " + accountNamespace)
	}
	must(t, os.MkdirAll(filepath.Dir(accountNamespace), 0o750))
	must(t, os.WriteFile(accountNamespace, []byte(namespace), 0o600))
	t.Cleanup(func() {
		_ = os.Remove(accountNamespace)
		for dir := filepath.Dir(accountNamespace); strings.HasPrefix(dir, "/var/run/secrets"); dir = filepath.Dir(dir) {
			_ = os.Remove(dir) // if it is empty
		}
	})
}

// TestUpgradeable: OLM must not upgrade the operator while it waits for its store, and may when the store is open. Without the API of OLM,
// the operator continues.
func TestUpgradeable(t *testing.T) {
	c := newCluster(t)
	fakeServiceAccountNamespace(t, c.system)
	must(t, apiv2.AddToScheme(c.client.Scheme()))
	c.create(&apiv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "scanner-operator.v0.1.0"}})
	says := func() string {
		var reported apiv2.OperatorCondition
		if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: c.system, Name: "scanner-operator.v0.1.0"}, &reported); err != nil {
			return err.Error()
		}
		condition := meta.FindStatusCondition(reported.Spec.Conditions, apiv2.Upgradeable)
		if condition == nil {
			return "nothing"
		}
		return string(condition.Status) + " " + condition.Reason
	}
	dataDir := t.TempDir()
	held, err := store.OpenSQLite(t.Context(), filepath.Join(dataDir, storeFile), time.Now)
	must(t, err)
	manager := c.startWith([]string{conditionVariable + "=scanner-operator.v0.1.0"}, "of OLM", dataDir)
	c.Eventually(says, waitTimeout, "100ms").Should(Equal("False OpeningStore"))
	c.Consistently(says, "2s", "250ms").Should(Equal("False OpeningStore"), "the store is not open yet")
	must(t, held.Close())
	c.Eventually(says, waitTimeout, "100ms").Should(Equal("True StoreReady"))
	c.waitReady(manager)

	refused := t.TempDir()
	must(t, os.WriteFile(filepath.Join(refused, storeFile), []byte("this is no store"), 0o600))
	c.waitEnded(c.startWith([]string{conditionVariable + "=scanner-operator.v0.1.0"}, "whose store is damaged", refused))
	c.Expect(says()).To(Equal("True StoreNotOpened"), "another version may help")

	gone := c.startWith([]string{conditionVariable + "=another"}, "of an OLM without the API", t.TempDir())
	c.Eventually(gone.log.String, waitTimeout, "100ms").Should(ContainSubstring("Reporting to OLM whether the operator may be upgraded"))
	c.Eventually(gone.log.String, waitTimeout, "100ms").Should(ContainSubstring("Attempting to acquire leader lease"), "it goes on")
}

// TestUpgradeableWithoutOLM: without OLM, the work is done and its error is returned.
func TestUpgradeableWithoutOLM(t *testing.T) {
	t.Setenv(conditionVariable, "")
	wantErr := errors.New("the store has a fault")
	if err := whileNotUpgradeable(t.Context(), "Any", "any", func() error { return wantErr }); !errors.Is(err, wantErr) {
		t.Errorf("error %v, want %v", err, wantErr)
	}
}
