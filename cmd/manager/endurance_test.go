package main

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestTwoManagersOneStore: the second lives, is not ready and says why, and takes over when the first is killed.
func TestTwoManagersOneStore(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	first := c.starts("first", dir)
	c.becomesReady(first)
	c.runs("a")
	c.covered(1)
	second := c.starts("second", dir)
	c.Eventually(second.alive, patience, "100ms").Should(Equal(http.StatusOK))
	status, text := second.probe("/readyz")
	c.Expect(status).To(Equal(http.StatusServiceUnavailable))
	c.Expect(text).To(ContainSubstring("the store is in use by another manager"))
	c.Expect(second.log.String()).To(ContainSubstring("Waiting for the store"))
	c.signals(first, syscall.SIGKILL)
	c.becomesReady(second)
	c.runs("b")
	c.covered(2)
}

// TestTwoManagersTwoStores: with stores of their own the lease decides. The second is not ready and says why, and takes
// over at once when the first ends in order.
func TestTwoManagersTwoStores(t *testing.T) {
	c := newCluster(t)
	first := c.starts("first", t.TempDir())
	c.becomesReady(first)
	second := c.starts("second", t.TempDir())
	c.Eventually(second.alive, patience, "100ms").Should(Equal(http.StatusOK))
	status, text := second.probe("/readyz?verbose")
	c.Expect(status).To(Equal(http.StatusInternalServerError))
	c.Expect(text).To(ContainSubstring("leading"))
	c.signals(first, syscall.SIGTERM)
	c.ends(first)
	c.becomesReady(second)
	c.runs("a")
	c.covered(1)
}

// TestTwoManagersLeaseLost: a manager that has lost its lease ends, and so writes nothing more, and says why.
func TestTwoManagersLeaseLost(t *testing.T) {
	c := newCluster(t)
	first := c.starts("first", t.TempDir())
	c.becomesReady(first)
	var lease coordinationv1.Lease
	c.Expect(c.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "scanner-operator-manager"}, &lease)).To(Succeed())
	lease.Spec.HolderIdentity = ptr.To("somebody else")
	c.Expect(c.client.Update(t.Context(), &lease)).To(Succeed())
	c.ends(first)
	c.Expect(first.command.ProcessState.ExitCode()).To(Equal(1))
	c.Expect(first.log.String()).To(ContainSubstring("manager: leader election lost"))
}

// TestAPIServerAway: the manager ends after it could not renew its lease, as documented, is started again as a kubelet
// would, and has everything covered soon after the API server is back, also what happened meanwhile.
func TestAPIServerAway(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	manager := c.starts("first", dir)
	c.becomesReady(manager)
	c.runs("a")
	c.covered(1)
	id := storeID(t, dir)
	c.door.set(true)
	c.runs("b") // the tests have a way of their own
	c.ends(manager)
	c.Expect(manager.log.String()).To(ContainSubstring("leader election lost"))
	again := c.starts("again", dir)
	c.Consistently(again.readiness, "5s", "1s").ShouldNot(Equal(http.StatusOK))
	c.door.set(false)
	back := time.Now()
	select {
	case <-again.ended:
		again = c.starts("and again", dir)
	default:
	}
	c.becomesReady(again)
	c.covered(2)
	t.Logf("all covered %s after the API server was back", time.Since(back).Round(time.Second))
	c.Expect(storeID(t, dir)).To(Equal(id), "nothing was lost")
}

func storeID(t *testing.T, dir string) string {
	t.Helper()
	db, err := store.OpenSQLiteReadOnly(filepath.Join(dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return db.ID()
}

// TestStoreMovedAwayWhileRunning: the manager ends, and with a new store everything is found again.
func TestStoreMovedAwayWhileRunning(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	manager := c.starts("first", dir)
	c.becomesReady(manager)
	c.runs("a")
	c.covered(1)
	before := storeID(t, dir)
	c.Expect(os.Rename(filepath.Join(dir, storeFile), filepath.Join(dir, "damaged.db"))).To(Succeed())
	c.ends(manager)
	c.Expect(manager.log.String()).To(ContainSubstring("moved away or replaced while the manager had it open"))
	c.becomesReady(c.starts("again", dir))
	c.covered(1)
	c.Expect(storeID(t, dir)).NotTo(Equal(before))
}

// TestStoreThatCannotBeOpened: the manager ends at once, and the last thing it says, which "kubectl describe pod"
// shows, is what to do. The file stays as it is.
func TestStoreThatCannotBeOpened(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	garbage := []byte("this is no store, and somebody may want it back")
	c.Expect(os.WriteFile(filepath.Join(dir, storeFile), garbage, 0o600)).To(Succeed())
	manager := c.starts("first", dir)
	c.ends(manager)
	c.Expect(manager.command.ProcessState.ExitCode()).To(Equal(1))
	c.Expect(manager.log.String()).To(MatchRegexp(`manager: store .*store\.db: open: the file is damaged or no store; move it away .*\n$`))
	c.Expect(os.ReadFile(filepath.Join(dir, storeFile))).To(Equal(garbage))
}
