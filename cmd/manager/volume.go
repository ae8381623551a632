package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

const (
	// volumeWait is how long a store on an ephemeral volume stays unused while Scanners remember one on a durable volume. During an
	// upgrade, OLM 0.38 may run the old version for half a minute without the volumes of its Subscription.
	volumeWait = 2 * time.Minute
	// volumeCheckInterval is the interval between two checks.
	volumeCheckInterval = 5 * time.Second
)

// waitForVolume waits if the store is on an ephemeral volume while Scanners remember a store on a durable one. This is usually a moment of an
// upgrade, and the new store would have everything scanned and announced again. If somebody has removed the volume on purpose, work begins
// after volumeWait.
func waitForVolume(ctx context.Context, o options, storeID string) error {
	direct, err := directClient()
	if err != nil {
		return err
	}
	durable, advice, err := storeDurability(ctx, direct, o)
	if err != nil || durable {
		return err
	}
	otherScanner, err := scannerOfAnotherStore(ctx, direct, o.Watched, storeID)
	if err != nil || otherScanner == "" {
		return err
	}
	const waiting = "waiting for the volume with the store that Scanners remember"
	ctrl.Log.Info(waiting, "scanner", otherScanner, "atMost", volumeWait.String(), "advice", advice)
	stop, err := serveNotReady(ctx, o.ProbeAddress, waiting)
	if err != nil {
		return err
	}
	defer stop()
	for began := time.Now(); otherScanner != "" && time.Since(began) < volumeWait; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(volumeCheckInterval):
		}
		if otherScanner, err = scannerOfAnotherStore(ctx, direct, o.Watched, storeID); err != nil {
			return err
		}
	}
	ctrl.Log.Info("The wait for the volume is over", "storeOnVolume", false)
	return nil
}

// scannerOfAnotherStore returns the name of a Scanner whose results are in another store, on a volume that outlives pods; empty if there is
// none.
func scannerOfAnotherStore(ctx context.Context, direct client.Reader, watched []string, storeID string) (string, error) {
	for _, namespace := range (&preflight.Checker{Watched: watched}).Namespaces() {
		var scanners v1alpha1.ScannerList
		err := direct.List(ctx, &scanners, client.InNamespace(namespace))
		if err != nil && !apierrors.IsForbidden(err) { // a missing permission affects only its own namespace
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
