package main

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestWaitForVolume: a manager without a volume does not start over while Scanners remember a store on a volume, since everything would
// be announced again. It starts when they remember none.
func TestWaitForVolume(t *testing.T) {
	c := newCluster(t)
	c.createPod("a")
	dataDir := t.TempDir()
	c.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "manager"},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{
				Name: "manager", Image: "scanner-operator", VolumeMounts: []corev1.VolumeMount{{Name: "store", MountPath: dataDir}},
			}},
		},
	})
	c.setRememberedStore(metav1.ConditionTrue)
	manager := c.startWith([]string{"POD_NAME=manager"}, "without", dataDir)
	c.Eventually(func() string { _, text := manager.probe("/readyz"); return text }, waitTimeout, "250ms").
		Should(ContainSubstring("waiting for the volume with the store that Scanners remember"))
	c.Expect(manager.liveness()).To(Equal(http.StatusOK), "it is not started again and again")
	var scans v1alpha1.ImageScanList
	c.Expect(c.client.List(t.Context(), &scans, client.InNamespace(c.shop))).To(Succeed())
	c.Expect(scans.Items).To(BeEmpty(), "nothing is scanned anew")

	c.setRememberedStore(metav1.ConditionFalse)
	c.waitReady(manager)
	c.Eventually(func() (int, error) {
		err := c.client.List(t.Context(), &scans, client.InNamespace(c.shop))
		return len(scans.Items), err
	}, waitTimeout, "250ms").Should(Equal(1))
}

// setRememberedStore makes the Scanner's status refer to another store, which is on a durable volume or not.
func (c *cluster) setRememberedStore(durable metav1.ConditionStatus) {
	c.t.Helper()
	var scanner v1alpha1.Scanner
	c.Expect(c.client.Get(c.t.Context(), client.ObjectKey{Namespace: c.shop, Name: "default"}, &scanner)).To(Succeed())
	scanner.Status.StoreID = "another"
	meta.SetStatusCondition(&scanner.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStoreDurable, Status: durable, Reason: "Test", Message: "test"})
	c.Expect(c.client.Status().Update(c.t.Context(), &scanner)).To(Succeed())
}
