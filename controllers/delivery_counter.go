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

// Check compares the store with the ConfigMap, before anything else uses the store. A store that is older than what was delivered, or
// another one with content, is treated as restored: rolledBack says so. The ConfigMap then says what the store says. A missing ConfigMap,
// and one that makes no sense, say nothing about the store.
func (c *DeliveryCounter) Check(ctx context.Context) (rolledBack bool, err error) {
	number, err := c.Store.Deliveries(ctx)
	if err != nil {
		return false, err
	}
	kept, err := c.read(ctx)
	if err != nil {
		return false, err
	}
	if rolledBack = c.isOlder(kept, number); rolledBack {
		if err := c.Store.TreatAsRestored(ctx); err != nil {
			return false, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return rolledBack, c.keep(ctx, number)
}

// isOlder says that the ConfigMap knows of more than the store, which has begun a number of deliveries.
func (c *DeliveryCounter) isOlder(kept *corev1.ConfigMap, number int64) bool {
	if kept == nil || kept.Data[deliveriesStore] == "" {
		return false
	}
	if kept.Data[deliveriesStore] != c.Store.ID() {
		// A new store has nothing to lose, and whoever restored a backup has said so.
		return number > 0 && !c.Store.Replaced()
	}
	known, err := strconv.ParseInt(kept.Data[deliveriesNumber], 10, 64)
	return err == nil && known > number
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
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: DeliveriesConfigMap}, Data: data}
		err := c.Client.Create(ctx, made)
		if err == nil {
			c.kept = made
		}
		return err
	}
	c.kept.Data = data
	return c.Client.Update(ctx, c.kept)
}

// read returns nil if there is no ConfigMap.
func (c *DeliveryCounter) read(ctx context.Context) (*corev1.ConfigMap, error) {
	kept := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: DeliveriesConfigMap}, kept)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return kept, err
}
