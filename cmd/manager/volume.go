package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/rights"
)

const (
	// volumePatience is how long a store that goes with its pod stays unused while Scanners remember one that does not. While
	// OLM 0.38 exchanges versions it may run the old one for half a minute without the volumes of its Subscription.
	volumePatience = 2 * time.Minute
	// volumeRetry is how often to look again.
	volumeRetry = 5 * time.Second
)

// awaitVolume waits where the store is on no volume that outlives the pod while Scanners say that theirs was on one. That is
// usually a moment of an upgrade, and with the new store everything would be scanned and told anew. If it is meant, because
// somebody took the volume away, work begins a little later.
func awaitVolume(ctx context.Context, o options, storeID string) error {
	direct, err := directClient()
	if err != nil {
		return err
	}
	durable, advice, err := storeDurability(ctx, direct, o)
	if err != nil || durable {
		return err
	}
	remembered, err := rememberedElsewhere(ctx, direct, o.Watched, storeID)
	if err != nil || remembered == "" {
		return err
	}
	const waiting = "waiting for the volume with the store that Scanners remember"
	ctrl.Log.Info(waiting, "scanner", remembered, "atMost", volumePatience.String(), "advice", advice)
	stop, err := serveWaiting(ctx, o.ProbeAddress, waiting)
	if err != nil {
		return err
	}
	defer stop()
	for began := time.Now(); remembered != "" && time.Since(began) < volumePatience; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(volumeRetry):
		}
		if remembered, err = rememberedElsewhere(ctx, direct, o.Watched, storeID); err != nil {
			return err
		}
	}
	ctrl.Log.Info("The wait for the volume is over", "storeOnVolume", false)
	return nil
}

// rememberedElsewhere names a Scanner whose results are in another store, on a volume that outlives pods; empty if there is none.
func rememberedElsewhere(ctx context.Context, direct client.Reader, watched []string, storeID string) (string, error) {
	for _, namespace := range (&rights.Checker{Watched: watched}).Namespaces() {
		var scanners v1alpha1.ScannerList
		err := direct.List(ctx, &scanners, client.InNamespace(namespace))
		if err != nil && !apierrors.IsForbidden(err) { // for a missing right only its namespace suffers
			return "", err
		}
		for i := range scanners.Items {
			status := &scanners.Items[i].Status
			if status.StoreID != storeID && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStoreDurable) {
				return client.ObjectKeyFromObject(&scanners.Items[i]).String(), nil
			}
		}
	}
	return "", nil
}
