package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/kinds"
	"github.com/scanner-operator/scanner-operator/pkg/rights"
)

const (
	// kindsRetry is how often to look for newer definitions while they are waited for.
	kindsRetry = 5 * time.Second
	// kindsInterval is how often to look whether the definitions are still those that this version needs.
	kindsInterval = 5 * time.Minute
)

// awaitKinds waits until the cluster serves the kinds with all the fields that this version has: without them nothing would be
// remembered that it writes. Meanwhile the process says that it lives and is not ready, and Scanners say why.
func awaitKinds(ctx context.Context, o options) error {
	served, direct, err := kindsClients()
	if err != nil {
		return err
	}
	err = checkKinds(served)
	var outdated *kinds.Outdated
	if !errors.As(err, &outdated) {
		return err
	}
	stop, err := serveWaiting(ctx, o.ProbeAddress, outdated.Error())
	if err != nil {
		return err
	}
	defer stop()
	namespaces := (&rights.Checker{Watched: o.Watched}).Namespaces()
	for outdated != nil {
		ctrl.Log.Error(outdated, "Waiting for newer definitions of the operator's kinds", "apply", o.applyKinds())
		if err := controllers.SayOutdated(ctx, direct, namespaces, o.applyKinds()+": "+outdated.Error()); err != nil {
			ctrl.Log.Info("Not all Scanners can say so", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(kindsRetry):
		}
		if err := checkKinds(served); err == nil {
			outdated = nil
		} else if !errors.As(err, &outdated) {
			ctrl.Log.Error(err, "Looking for newer definitions of the operator's kinds")
		}
	}
	return nil
}

// applyKinds is how to bring the definitions up to date, whatever the operator was installed with.
func (o *options) applyKinds() string {
	pod := o.PodName
	if pod == "" {
		pod = "deploy/scanner-operator-manager"
	}
	return fmt.Sprintf("kubectl -n %s exec %s -- /scanner-operator crds | kubectl apply --server-side --force-conflicts -f -", o.Namespace, pod)
}

// watchKinds looks at the definitions now and then. It returns an error, by which the process ends and begins anew, waiting,
// when older ones have taken the place of those that this version needs. It looks twice: an API server that has just started
// serves its documents a moment later.
func (op *operator) watchKinds(ctx context.Context) error {
	served, _, err := kindsClients()
	if err != nil {
		return err
	}
	var before *kinds.Outdated
	for {
		wait := kindsInterval
		if before != nil {
			wait = kindsRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		var outdated *kinds.Outdated
		err := op.loops.Run("kinds", func() error { return checkKinds(served) })
		if !errors.As(err, &outdated) && err != nil {
			ctrl.Log.Error(err, "Looking at the definitions of the operator's kinds")
		}
		if outdated != nil && before != nil {
			return outdated
		}
		before = outdated
	}
}

// checkKinds is kinds.Check, where one may ask: it is usual, and no reason not to work.
func checkKinds(served openapi.Client) error {
	err := kinds.Check(served)
	if apierrors.IsForbidden(err) {
		ctrl.Log.Info("The definitions of the operator's kinds are not compared with what it needs", "reason", err.Error())
		return nil
	}
	return err
}

func kindsClients() (openapi.Client, client.Client, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	direct, err := directClient()
	return served.OpenAPIV3(), direct, err
}
