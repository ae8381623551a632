package controllers

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// volumeWorld is a notifyWorld whose store is on a volume that can be rolled back to a snapshot.
type volumeWorld struct {
	*notifyWorld
	path string
	// rolledBack is the result of DeliveryCounter.Check at the last start.
	rolledBack bool
}

func newVolumeWorld(t *testing.T, change func(*v1alpha1.Scanner)) *volumeWorld {
	t.Helper()
	w := &volumeWorld{notifyWorld: newNotifyWorld(t, change), path: filepath.Join(t.TempDir(), "store.db")}
	w.restart(nil)
	return w
}

// restart reopens the store as a new process would. It replaces the file by snapshot unless that is nil. It returns the content from
// before.
func (w *volumeWorld) restart(snapshot []byte) (before []byte) {
	w.t.Helper()
	w.must(w.store.Close())
	before, _ = os.ReadFile(w.path) // no file exists at first
	if snapshot != nil {
		w.must(os.WriteFile(w.path, snapshot, 0o600))
	}
	db, err := store.OpenSQLite(w.t.Context(), w.path, w.clock.Now)
	w.must(err)
	w.use(db)
	return before
}

// use starts with a store as a new process would.
func (w *volumeWorld) use(db *store.Store) {
	w.t.Helper()
	w.t.Cleanup(func() { _ = db.Close() })
	w.store, w.reconciler.Store, w.reconciler.Inventory.Store = db, db, db
	counter := &preflight.DeliveryCounter{Client: w.client, Namespace: "scanner-operator-system", Store: db}
	var err error
	w.rolledBack, err = counter.Check(w.t.Context())
	w.must(err)
	w.reconciler.RecordDelivery = counter.Count
}

// setStoreID sets the store ID in the Scanner's status, as the ScannerReconciler does once all receivers have a state in the store.
func (w *volumeWorld) setStoreID() {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(w.scanner), w.scanner))
	w.scanner.Status.StoreID = w.store.ID()
	w.must(w.client.Status().Update(w.t.Context(), w.scanner))
}

// messages advances the clock by an hour and returns what was sent.
func (w *volumeWorld) messages() []announce.Message {
	w.t.Helper()
	var digests []announce.Message
	_, first := w.reconcileAfter(time.Hour)
	_, second := w.reconcileAfter(30 * time.Second)
	for _, d := range append(first, second...) {
		digests = append(digests, d.Message)
	}
	return digests
}

// configMap returns the ConfigMap; nil if there is none.
func (w *volumeWorld) configMap() *corev1.ConfigMap {
	w.t.Helper()
	var kept corev1.ConfigMap
	err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "scanner-operator-system", Name: preflight.DeliveriesConfigMap}, &kept)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return &kept
}

// TestStoreRolledBack: after the store's volume is rolled back to a snapshot, findings announced since then are not announced again. One
// message summarises what was found since the snapshot, announced or not. Later findings are new. The same holds if the ConfigMap is
// missing, as after a restore of the namespace from a backup without it, and if it is empty.
func TestStoreRolledBack(t *testing.T) {
	for name, damage := range map[string]func(*volumeWorld){
		"with the ConfigMap": func(*volumeWorld) {},
		"without it":         func(w *volumeWorld) { w.must(w.client.Delete(w.t.Context(), w.configMap())) },
		"emptied": func(w *volumeWorld) {
			kept := w.configMap()
			kept.Data = nil
			w.must(w.client.Update(w.t.Context(), kept))
		},
	} {
		t.Run(name, func(t *testing.T) { testStoreRolledBack(t, damage) })
	}
}

func testStoreRolledBack(t *testing.T, damage func(*volumeWorld)) {
	w := newVolumeWorld(t, nil)
	w.saveReport(finding.Critical)
	w.messages() // the first summary
	w.setStoreID()
	snapshot := w.restart(nil)
	if w.rolledBack {
		t.Fatal("a restart counts as a rollback")
	}
	w.saveReport(finding.Critical, finding.High)
	if reported := w.messages(); len(reported) != 1 || reported[0].Kind != announce.KindChanges {
		t.Fatalf("messages %+v, want one about the new finding", reported)
	}
	before := w.store.ID()
	damage(w)
	w.restart(snapshot)
	if !w.rolledBack || w.store.ID() == before {
		t.Fatalf("the rollback is recognised: %t; want it, and another id of the store", w.rolledBack)
	}
	w.saveReport(finding.Critical, finding.High)
	reported := w.messages()
	if len(reported) != 1 || reported[0].Kind != announce.KindStoreRestored || reported[0].NotAnnounced != 1 {
		t.Fatalf("messages %+v, want one summary of one finding that may have been announced", reported)
	}
	w.saveReport(finding.Critical, finding.High, finding.Critical)
	if reported := w.messages(); len(reported) != 1 || reported[0].Kind != announce.KindChanges || reported[0].Totals.Total() != 1 {
		t.Errorf("messages %+v, want the finding that is new now", reported)
	}
	if w.restart(nil); w.rolledBack {
		t.Error("the next restart counts as a rollback again")
	}
}

// TestStoreMoved: receivers get no message because of a move to a server or back, and afterwards only what is new. A dump from before the
// last message counts as a rollback, as the snapshot of a volume does.
func TestStoreMoved(t *testing.T) {
	w := newVolumeWorld(t, nil)
	w.saveReport(finding.Critical)
	w.messages() // the first summary
	w.setStoreID()
	dump := func() io.Reader {
		t.Helper()
		var out bytes.Buffer
		_, err := w.store.Dump(t.Context(), "1.2.3", &out, nil)
		w.must(err)
		w.must(w.store.Close())
		return &out
	}
	toFile := func(dump io.Reader) {
		t.Helper()
		w.path = filepath.Join(t.TempDir(), "store.db")
		_, err := store.LoadSQLite(t.Context(), dump, w.path, false, nil)
		w.must(err)
		w.restart(nil)
	}
	toServer := func(dump io.Reader) {
		t.Helper()
		dsn := server.PostgreSQL(t).NewDatabase(t)
		open := func() *store.Store {
			t.Helper()
			db, err := store.OpenPostgreSQL(t.Context(), store.Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 2}, w.clock.Now)
			w.must(err)
			return db
		}
		db := open()
		_, err := db.Load(t.Context(), dump, nil)
		w.must(err)
		w.must(db.Close())
		w.use(open())
	}
	id, old := w.store.ID(), dump()
	w.restart(nil)
	severities := []finding.Severity{finding.Critical, finding.High, finding.Critical}
	for known, move := range []func(io.Reader){toServer, toFile} {
		move(dump())
		if w.rolledBack || w.store.ID() != id || w.store.Replaced() || !w.store.RestoredFrom().IsZero() {
			t.Fatalf("the store has the ID %s, and counts as rolled back: %t, as restored from %s; want nothing but the ID %s",
				w.store.ID(), w.rolledBack, w.store.RestoredFrom(), id)
		}
		w.saveReport(severities[:known+1]...)
		if reported := w.messages(); len(reported) != 0 {
			t.Fatalf("messages %+v after the move, want none", reported)
		}
		w.saveReport(severities[:known+2]...)
		if reported := w.messages(); len(reported) != 1 || reported[0].Kind != announce.KindChanges || reported[0].Totals.Total() != 1 {
			t.Fatalf("messages %+v, want the one new finding", reported)
		}
	}
	if toFile(old); !w.rolledBack || w.store.ID() == id {
		t.Errorf("the store of an old dump has the ID %s, and counts as rolled back: %t; want that, and another ID", w.store.ID(), w.rolledBack)
	}
}

// TestRolledBackBeforeAReceiver: a receiver that was added after the snapshot gets one summary that announces nothing as new, even with
// firstScan All.
func TestRolledBackBeforeAReceiver(t *testing.T) {
	w := newVolumeWorld(t, nil)
	w.saveReport(finding.Critical)
	w.messages()
	snapshot := w.restart(nil)
	all := slackReceiver("all")
	all.FirstScan = v1alpha1.FirstScanAll
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(w.scanner), w.scanner))
	w.scanner.Spec.Notifications = append(w.scanner.Spec.Notifications, all)
	w.must(w.client.Update(t.Context(), w.scanner))
	if reported := w.messages(); len(reported) != 1 || reported[0].Kind != announce.KindChanges {
		t.Fatalf("messages %+v, want one to the new receiver", reported)
	}
	w.setStoreID()
	w.restart(snapshot)
	w.saveReport(finding.Critical)
	if reported := w.messages(); len(reported) != 1 || reported[0].Kind != announce.KindBaselineRenewed {
		t.Errorf("messages %+v, want that the baseline was renewed", reported)
	}
}

// TestDeliveryCounterIsKept: the number is in the ConfigMap before a message is sent. A deleted or invalid ConfigMap blocks no message and
// is written again.
func TestDeliveryCounterIsKept(t *testing.T) {
	for name, damage := range map[string]func(*volumeWorld){
		"untouched": func(*volumeWorld) {},
		"deleted":   func(w *volumeWorld) { w.must(w.client.Delete(w.t.Context(), w.configMap())) },
		"broken": func(w *volumeWorld) {
			kept := w.configMap()
			kept.Data, kept.Labels = map[string]string{"store": "x", "deliveries": "many"}, nil
			w.must(w.client.Update(w.t.Context(), kept))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVolumeWorld(t, nil)
			damage(w)
			w.saveReport(finding.Critical)
			if reported := w.messages(); len(reported) != 1 {
				t.Fatalf("%d messages, want one", len(reported))
			}
			number, err := w.store.Deliveries(t.Context())
			w.must(err)
			if got := w.configMap().Data; got["store"] != w.store.ID() || got["deliveries"] != strconv.FormatInt(number, 10) || number == 0 {
				t.Errorf("the ConfigMap says %v, want store %s and %d deliveries", got, w.store.ID(), number)
			}
			if labels := w.configMap().Labels; labels["velero.io/exclude-from-backup"] != "true" {
				t.Errorf("the ConfigMap has the labels %v, want Velero to leave it out of its backups", labels)
			}
		})
	}
}

// TestDeliveryCounterCannotBeKept: if the API server refuses the ConfigMap, messages are still sent. Check then returns the error, and does
// not treat the store as restored at each start because the ConfigMap is missing.
func TestDeliveryCounterCannotBeKept(t *testing.T) {
	w := newVolumeWorld(t, nil)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, preflight.DeliveriesConfigMap, nil)
	refusing := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return forbidden },
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return forbidden },
	})
	counter, id := &preflight.DeliveryCounter{Client: refusing, Namespace: "scanner-operator-system", Store: w.store}, w.store.ID()
	w.reconciler.RecordDelivery = counter.Count
	w.saveReport(finding.Critical)
	if reported := w.messages(); len(reported) != 1 {
		t.Errorf("%d messages, want one", len(reported))
	}
	w.must(w.client.Delete(t.Context(), w.configMap()))
	rolledBack, err := counter.Check(t.Context())
	if !apierrors.IsForbidden(err) || rolledBack || w.store.ID() != id {
		t.Errorf("rolled back: %t, error %v, store %s; want the refusal, and store %s as it was", rolledBack, err, w.store.ID(), id)
	}
}

// TestDeliveryCounterCheck: which stores count as rolled back, for each content of the ConfigMap.
func TestDeliveryCounterCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		begun int
		says  map[string]string
		want  bool
	}{
		"no ConfigMap":               {1, nil, true},
		"the first start":            {0, nil, false},
		"the same":                   {2, map[string]string{"store": "this", "deliveries": "2"}, false},
		"crashed before it was kept": {2, map[string]string{"store": "this", "deliveries": "1"}, false},
		"older":                      {1, map[string]string{"store": "this", "deliveries": "2"}, true},
		"from before it was counted": {0, map[string]string{"store": "this", "deliveries": "1"}, true},
		"a new store":                {0, map[string]string{"store": "lost", "deliveries": "7"}, false},
		"another store with content": {1, map[string]string{"store": "restored", "deliveries": "7"}, true},
		"no number":                  {1, map[string]string{"store": "this", "deliveries": "many"}, true},
		"nothing":                    {1, map[string]string{}, true},
		"nothing, and none begun":    {0, map[string]string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNotifyWorld(t, nil)
			for range tt.begun {
				_, err := w.store.BeginDelivery(t.Context(), "scanner-uid", "team", []byte(`{}`))
				w.must(err)
			}
			if tt.says != nil {
				if tt.says["store"] == "this" {
					tt.says["store"] = w.store.ID()
				}
				w.must(w.client.Create(t.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "scanner-operator-system", Name: preflight.DeliveriesConfigMap}, Data: tt.says,
				}))
			}
			counter := &preflight.DeliveryCounter{Client: w.client, Namespace: "scanner-operator-system", Store: w.store}
			rolledBack, err := counter.Check(t.Context())
			w.must(err)
			if rolledBack != tt.want {
				t.Errorf("rolled back: %t, want %t", rolledBack, tt.want)
			}
			if again, err := counter.Check(t.Context()); err != nil || again {
				t.Errorf("the next start finds it rolled back: %t, error %v; want neither", again, err)
			}
		})
	}
}
