package preflight

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// DeliveriesConfigMap is the name of the ConfigMap in the operator's namespace that has the number of deliveries that the store has begun.
const DeliveriesConfigMap = "scanner-operator-deliveries"

// Keys of the ConfigMap.
const (
	deliveriesStore  = "store"
	deliveriesNumber = "deliveries"
)

// excludeFromBackup is the label by which Velero leaves an object out (https://velero.io/docs/main/resource-filtering/). A ConfigMap that
// is restored together with the volume would match the older store, and hide the rollback.
const excludeFromBackup = "velero.io/exclude-from-backup"

// countTimeout bounds how long a message waits for its number to be written.
const countTimeout = 5 * time.Second

// DeliveryCounter keeps the number of deliveries outside the store's volume. It detects a volume that was rolled back to a snapshot: such a
// store has begun fewer deliveries than the ConfigMap records.
//
// The number is written after the store has it and before the message is sent. It is therefore higher than that of the store only if the
// store has lost data.
type DeliveryCounter struct {
	// Client must read from the API server, not from a cache.
	Client    client.Client
	Namespace string
	Store     *store.Store

	mu sync.Mutex
	// configMap is the ConfigMap as last written; nil if unknown. number is the number in it. mu guards both.
	configMap *corev1.ConfigMap
	number    int64
}

// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,resourceNames=scanner-operator-deliveries,verbs=get;update

// Check compares the store with the ConfigMap. It must run before anything else uses the store. It treats a store as restored, and returns
// rolledBack true, in two cases: the store has fewer deliveries than the ConfigMap records for it, or the store has deliveries and the
// ConfigMap is missing, invalid or of another store. The second case does not apply to a store that was restored explicitly
// (Store.Replaced). Check then writes the store's ID and number into the ConfigMap. If the ConfigMap cannot be written, Check returns the
// error and leaves the store unchanged.
func (c *DeliveryCounter) Check(ctx context.Context) (rolledBack bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The ConfigMap is read first. A leader that still works with the same server then cannot make the store appear older than the ConfigMap.
	if c.configMap, err = c.read(ctx); err != nil {
		return false, err
	}
	number, err := c.Store.Deliveries(ctx)
	if err != nil {
		return false, err
	}
	var saved map[string]string
	if c.configMap != nil {
		saved = c.configMap.Data
	}
	if rolledBack = c.isRolledBack(saved, number); rolledBack {
		// The ConfigMap is written first. An operator that cannot write it would otherwise treat the store as restored at each start.
		if err := c.write(ctx, saved); err != nil {
			return false, fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, DeliveriesConfigMap, err)
		}
		if err := c.Store.TreatAsRestored(ctx); err != nil {
			return false, err
		}
	}
	return rolledBack, c.record(ctx, number)
}

// isRolledBack reports whether the store must be treated as restored, given the ConfigMap's data and the number of deliveries that the store has
// begun.
func (c *DeliveryCounter) isRolledBack(saved map[string]string, number int64) bool {
	known, err := strconv.ParseInt(saved[deliveriesNumber], 10, 64)
	if err != nil || saved[deliveriesStore] != c.Store.ID() {
		// Each store that has begun a delivery has a ConfigMap: both are written since the same version. A new store has nothing to lose,
		// and an explicit restore is known to the store.
		return number > 0 && !c.Store.Replaced()
	}
	return known > number
}

// Count records the number of a delivery that is about to be sent. A failure is logged and does not delay the message. A rollback to a
// snapshot from before this delivery then goes undetected, unless a later number is recorded.
func (c *DeliveryCounter) Count(ctx context.Context, number int64) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if number <= c.number {
		// A later number was recorded while this call waited for the lock.
		return
	}
	latest, err := c.Store.Deliveries(ctx)
	if err == nil {
		err = c.record(ctx, max(latest, number))
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Keeping the number of deliveries: a rollback of the store's volume may go unnoticed", "configMap", DeliveriesConfigMap)
	}
}

// record writes number into the ConfigMap. It retries once if someone else has changed, created or deleted the ConfigMap since the last
// write. The caller holds the lock.
func (c *DeliveryCounter) record(ctx context.Context, number int64) error {
	data := map[string]string{deliveriesStore: c.Store.ID(), deliveriesNumber: strconv.FormatInt(number, 10)}
	err := c.write(ctx, data)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		if c.configMap, err = c.read(ctx); err == nil {
			err = c.write(ctx, data)
		}
	}
	if err != nil {
		c.configMap = nil
		return fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, DeliveriesConfigMap, err)
	}
	c.number = number
	return nil
}

// write creates or replaces the ConfigMap.
func (c *DeliveryCounter) write(ctx context.Context, data map[string]string) error {
	if c.configMap == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: DeliveriesConfigMap, Labels: map[string]string{excludeFromBackup: "true"},
		}, Data: data}
		err := c.Client.Create(ctx, made)
		if err == nil {
			c.configMap = made
		}
		return err
	}
	metav1.SetMetaDataLabel(&c.configMap.ObjectMeta, excludeFromBackup, "true")
	c.configMap.Data = data
	return c.Client.Update(ctx, c.configMap)
}

// read returns nil if the ConfigMap does not exist.
func (c *DeliveryCounter) read(ctx context.Context) (*corev1.ConfigMap, error) {
	kept := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: DeliveriesConfigMap}, kept)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return kept, nil
}
