package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/election"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestTwoManagersOneStore: the second manager is alive and not ready, reports why, and takes over when the first one is killed.
func TestTwoManagersOneStore(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	first := c.start("first", dir)
	c.waitReady(first)
	c.createPod("a")
	c.waitScanned(1)
	second := c.start("second", dir)
	c.Eventually(second.liveness, waitTimeout, "100ms").Should(Equal(http.StatusOK))
	status, text := second.probe("/readyz")
	c.Expect(status).To(Equal(http.StatusServiceUnavailable))
	c.Expect(text).To(ContainSubstring("the store is in use by another manager"))
	c.Expect(second.log.String()).To(ContainSubstring("Waiting for the store"))
	c.signal(first, syscall.SIGKILL)
	c.waitReady(second)
	c.createPod("b")
	c.waitScanned(2)
}

// TestTwoManagersTwoStores: managers with separate stores compete for the lease. The second one is not ready, reports why, and takes over
// at once when the first one shuts down.
func TestTwoManagersTwoStores(t *testing.T) {
	c := newCluster(t)
	first := c.start("first", t.TempDir())
	c.waitReady(first)
	second := c.start("second", t.TempDir())
	// Before its store is open, a manager answers 503 and names no check.
	c.Eventually(func() string {
		status, text := second.probe("/readyz?verbose")
		return fmt.Sprint(status, text)
	}, waitTimeout, "100ms").Should(And(HavePrefix("500"), ContainSubstring("leading")))
	c.signal(first, syscall.SIGTERM)
	c.waitEnded(first)
	c.waitReady(second)
	c.createPod("a")
	c.waitScanned(1)
}

// TestTwoManagersLeaseLost: a manager that has lost its lease ends, so that it writes nothing more, and reports why.
func TestTwoManagersLeaseLost(t *testing.T) {
	c := newCluster(t)
	short := []string{"SCANNER_LEADER_ELECT_LEASE_DURATION=3s", "SCANNER_LEADER_ELECT_RENEW_DEADLINE=2s", "SCANNER_LEADER_ELECT_RETRY_PERIOD=500ms"}
	first := c.startWith(short, "first", t.TempDir())
	c.waitReady(first)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "scanner-operator-manager"}}
	stolen := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"somebody else"}}`)) // no conflict
	c.Expect(c.client.Patch(t.Context(), lease, stolen)).To(Succeed())
	c.waitEnded(first)
	c.Expect(first.command.ProcessState.ExitCode()).To(Equal(1))
	c.Expect(first.log.String()).To(ContainSubstring("scanner-operator: leader election lost"))
}

// TestAPIServerUnavailable: a manager with a store in a file outlives a minute without an API server, whose connections hang. It covers everything
// soon after the API server is back, including what happened in the meantime.
func TestAPIServerUnavailable(t *testing.T) {
	c := newCluster(t)
	manager := c.start("first", t.TempDir())
	c.waitReady(manager)
	c.createPod("a")
	c.waitScanned(1)
	c.proxy.setStalled(true)
	c.createPod("b") // the test's own client does not go through the proxy
	select {
	case <-manager.ended:
		t.Fatal("the manager ended while the API server was away")
	case <-time.After(time.Minute):
	}
	c.proxy.setStalled(false)
	back := time.Now()
	c.waitScanned(2)
	t.Logf("all covered %s after the API server was back", time.Since(back).Round(time.Second))
	c.waitReady(manager)
}

// TestKilledManager: a manager with the store of one that was killed leads at once. It does not wait for the end of the other one's lease.
func TestKilledManager(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	first := c.start("first", dir)
	c.waitReady(first)
	c.createPod("a")
	c.waitScanned(1)
	id := storeID(t, dir)
	c.signal(first, syscall.SIGKILL)
	c.waitEnded(first)
	c.waitReady(c.start("again", dir))
	c.createPod("b")
	c.Expect(storeID(t, dir)).To(Equal(id), "nothing was lost")
	began := time.Now()
	c.waitScanned(2)
	c.Expect(time.Since(began)).To(BeNumerically("<", election.ForOneHolder.LeaseDuration/2))
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

// TestStoreMovedAwayWhileRunning: the manager ends, and with a new store everything is scanned again.
func TestStoreMovedAwayWhileRunning(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	manager := c.start("first", dir)
	c.waitReady(manager)
	c.createPod("a")
	c.waitScanned(1)
	before := storeID(t, dir)
	c.Expect(os.Rename(filepath.Join(dir, storeFile), filepath.Join(dir, "damaged.db"))).To(Succeed())
	c.waitEnded(manager)
	c.Expect(manager.log.String()).To(ContainSubstring("moved away or replaced while the manager had it open"))
	c.waitReady(c.start("again", dir))
	c.waitScanned(1)
	c.Expect(storeID(t, dir)).NotTo(Equal(before))
}

// TestStoreThatCannotBeOpened: the manager ends at once. The last line of its log, which "kubectl describe pod" shows, says what to do. The
// file stays unchanged.
func TestStoreThatCannotBeOpened(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	garbage := []byte("this is no store, and somebody may want it back")
	c.Expect(os.WriteFile(filepath.Join(dir, storeFile), garbage, 0o600)).To(Succeed())
	manager := c.start("first", dir)
	c.waitEnded(manager)
	c.Expect(manager.command.ProcessState.ExitCode()).To(Equal(1))
	c.Expect(manager.log.String()).To(MatchRegexp(`scanner-operator: store .*store\.db: open: the file is damaged or no store; move it away .*\n$`))
	c.Expect(os.ReadFile(filepath.Join(dir, storeFile))).To(Equal(garbage))
}

// TestStoreOfNewerVersion: a manager that was downgraded ends at once, names both schema versions, and writes nothing.
func TestStoreOfNewerVersion(t *testing.T) {
	c := newCluster(t)
	path := filepath.Join(t.TempDir(), storeFile)
	opened, err := store.OpenSQLite(t.Context(), path, time.Now)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(opened.Close()).To(Succeed())
	db, err := sql.Open("sqlite", path)
	c.Expect(err).NotTo(HaveOccurred())
	_, err = db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1); UPDATE store_revision SET oldest_schema = 999`)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(db.Close()).To(Succeed())
	before, err := os.ReadFile(path)
	c.Expect(err).NotTo(HaveOccurred())
	manager := c.start("older", filepath.Dir(path))
	c.waitEnded(manager)
	c.Expect(manager.log.String()).To(MatchRegexp(`scanner-operator: store .*store\.db: open: the store was written by a newer version of the operator \(schema 999, this one knows [0-9]+\): .*\n$`))
	c.Expect(os.ReadFile(path)).To(Equal(before), "nothing was written")
}

// waitForCondition waits for a condition of the Scanner.
func (c *cluster) waitForCondition(condition string, status metav1.ConditionStatus, reason, text string) {
	c.t.Helper()
	c.Eventually(func(g Gomega) {
		var scanner v1alpha1.Scanner
		g.Expect(c.client.Get(c.t.Context(), client.ObjectKey{Namespace: c.shop, Name: "default"}, &scanner)).To(Succeed())
		got := meta.FindStatusCondition(scanner.Status.Conditions, condition)
		g.Expect(got).NotTo(BeNil())
		g.Expect(*got).To(And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", ContainSubstring(text))))
	}, "2m", "250ms").Should(Succeed())
}

// TestStoreVolumeFullWhileRunning: on a real volume without free space, the Scanner reports this within two minutes. The manager stays
// alive, findings can be read, and work continues by itself when there is free space again.
func TestStoreVolumeFullWhileRunning(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	c := newCluster(t)
	dir := t.TempDir()
	mount := `mount --make-rprivate / && mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"`
	manager := c.start("first", dir, "unshare", "-m", "sh", "-c", mount, dir)
	c.waitReady(manager)
	c.createPod("a")
	c.waitScanned(1)
	seen := filepath.Join("/proc", strconv.Itoa(manager.command.Process.Pid), "root", dir)
	filler, err := os.Create(filepath.Join(seen, "filler"))
	c.Expect(err).NotTo(HaveOccurred())
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	c.Expect(err).To(MatchError(syscall.ENOSPC))
	c.Expect(filler.Close()).To(Succeed())
	c.createPod("b")
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionFalse, v1alpha1.ReasonVolumeFull, "enlarge it")
	c.waitForCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVolumeFull, "enlarge it")
	c.Expect(manager.readiness()).To(Equal(http.StatusOK), "what is known can still be asked for")
	findings := exec.CommandContext(t.Context(), "nsenter", "-m", "-t", strconv.Itoa(manager.command.Process.Pid),
		os.Args[0], "findings", "--data-dir="+dir)
	findings.Env = append(os.Environ(), asManager+"=1")
	output, err := findings.CombinedOutput()
	c.Expect(err).NotTo(HaveOccurred(), "manager findings: %s", output)
	c.Expect(string(output)).To(ContainSubstring("NAMESPACE"))
	c.Expect(os.Remove(filler.Name())).To(Succeed())
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionTrue, v1alpha1.ReasonVolumeMounted, "")
	c.waitScanned(2)
	c.Expect(strings.Count(manager.log.String(), `"level":"ERROR"`)).To(BeNumerically("<", 20), "nothing is tried all the time")
}

// TestStoreCorruptWhileRunning: a file that is damaged while the manager runs is reported within two minutes, and stays.
func TestStoreCorruptWhileRunning(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	manager := c.start("first", dir)
	c.waitReady(manager)
	c.createPod("a")
	c.waitScanned(1)
	c.signal(manager, syscall.SIGTERM) // moves everything from the write-ahead log into the file
	c.waitEnded(manager)
	manager = c.start("again", dir)
	c.waitReady(manager)
	path := filepath.Join(dir, storeFile)
	content, err := os.ReadFile(path)
	c.Expect(err).NotTo(HaveOccurred())
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	c.Expect(err).NotTo(HaveOccurred())
	const page = 4096
	_, err = file.WriteAt(bytes.Repeat([]byte("garbage "), (len(content)-page)/8), page)
	c.Expect(errors.Join(err, file.Close())).To(Succeed())
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionFalse, v1alpha1.ReasonStoreCorrupt, "move it away")
	c.waitForCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStoreCorrupt, "move it away")
	c.Expect(manager.liveness()).To(Equal(http.StatusOK))
	after, err := os.ReadFile(path)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(len(after)).To(BeNumerically(">=", len(content)), "the file stays")
}
