package controllers

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// DeliveriesConfigMap is the name of the ConfigMap in the operator's namespace that says how many deliveries the store has begun.
const DeliveriesConfigMap = "scanner-operator-deliveries"

// Keys of the ConfigMap.
const (
	deliveriesStore  = "store"
	deliveriesNumber = "deliveries"
)

// excludeFromBackup is the label by which Velero leaves an object out (https://velero.io/docs/main/resource-filtering/). A ConfigMap that came
// back together with the volume would say what the older store says.
const excludeFromBackup = "velero.io/exclude-from-backup"

// countTimeout bounds how long a message waits until its number is kept.
const countTimeout = 5 * time.Second

// DeliveryCounter keeps the number of deliveries outside of the store's volume, by which a volume that was put back to a snapshot is
// recognised: its store has begun fewer deliveries than there were.
//
// The number is written after the store has it and before the message goes out. So it is never higher than that of the store, unless the
// store has lost something.
type DeliveryCounter struct {
	// Client reads from the API server and not from a cache.
	Client    client.Client
	Namespace string
	Store     store.Store

	mu sync.Mutex
	// kept is the ConfigMap as it was written last, nil if that is not known; number is what it says.
	kept   *corev1.ConfigMap
	number int64
}

// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,resourceNames=scanner-operator-deliveries,verbs=get;update

// Check compares the store with the ConfigMap, before anything else uses the store. A store that is older than what was delivered, another
// one with content, or one that has begun deliveries of which no ConfigMap says anything, is treated as restored: rolledBack is true. The
// ConfigMap then says what the store says. When the ConfigMap cannot be written, Check returns the error and leaves the store as it is.
func (c *DeliveryCounter) Check(ctx context.Context) (rolledBack bool, err error) {
	number, err := c.Store.Deliveries(ctx)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept, err = c.read(ctx); err != nil {
		return false, err
	}
	var says map[string]string
	if c.kept != nil {
		says = c.kept.Data
	}
	if rolledBack = c.isOlder(says, number); rolledBack {
		// First, since whoever cannot write the ConfigMap would treat the store as restored at each start.
		if err := c.write(ctx, says); err != nil {
			return false, fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, DeliveriesConfigMap, err)
		}
		if err := c.Store.TreatAsRestored(ctx); err != nil {
			return false, err
		}
	}
	return rolledBack, c.keep(ctx, number)
}

// isOlder compares what the ConfigMap says with the store, which has begun a number of deliveries.
func (c *DeliveryCounter) isOlder(says map[string]string, number int64) bool {
	known, err := strconv.ParseInt(says[deliveriesNumber], 10, 64)
	if err != nil || says[deliveriesStore] != c.Store.ID() {
		// There was a ConfigMap about any store that has begun a delivery: both are counted since the same version. A new store has nothing to
		// lose, and whoever restored a backup has said so.
		return number > 0 && !c.Store.Replaced()
	}
	return known > number
}

// Count keeps the number of a delivery that is about to be made. Failing to do so holds no message back; a rollback to a moment before
// this delivery then goes unnoticed unless a later number is kept.
func (c *DeliveryCounter) Count(ctx context.Context, number int64) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if number <= c.number {
		// It was kept with a later one while this one waited.
		return
	}
	latest, err := c.Store.Deliveries(ctx)
	if err == nil {
		err = c.keep(ctx, max(latest, number))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Keeping the number of deliveries: a rollback of the store's volume may go unnoticed", "configMap", DeliveriesConfigMap)
	}
}

// keep writes the ConfigMap. Somebody else may have changed or deleted it since it was written last. The caller holds the lock.
func (c *DeliveryCounter) keep(ctx context.Context, number int64) error {
	data := map[string]string{deliveriesStore: c.Store.ID(), deliveriesNumber: strconv.FormatInt(number, 10)}
	err := c.write(ctx, data)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		if c.kept, err = c.read(ctx); err == nil {
			err = c.write(ctx, data)
		}
	}
	if err != nil {
		c.kept = nil
		return fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, DeliveriesConfigMap, err)
	}
	c.number = number
	return nil
}

// write replaces what the ConfigMap says, or makes it.
func (c *DeliveryCounter) write(ctx context.Context, data map[string]string) error {
	if c.kept == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: DeliveriesConfigMap, Labels: map[string]string{excludeFromBackup: "true"},
		}, Data: data}
		err := c.Client.Create(ctx, made)
		if err == nil {
			c.kept = made
		}
		return err
	}
	metav1.SetMetaDataLabel(&c.kept.ObjectMeta, excludeFromBackup, "true")
	c.kept.Data = data
	return c.Client.Update(ctx, c.kept)
}

// read returns nil if there is no ConfigMap.
func (c *DeliveryCounter) read(ctx context.Context) (*corev1.ConfigMap, error) {
	kept := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: DeliveriesConfigMap}, kept)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return kept, nil
}
