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
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

const (
	// outdatedCRDInterval is how often outdated CRDs are checked again.
	outdatedCRDInterval = 5 * time.Second
	// crdCheckInterval is how often CRDs that are up to date are checked again.
	crdCheckInterval = 5 * time.Minute
)

// waitForCRDs waits until the cluster serves the operator's kinds with all fields that this version has. Without these fields, the API
// server would drop what the manager writes. Meanwhile the process is alive and not ready, and the Scanners have a condition with the
// reason.
func waitForCRDs(ctx context.Context, o options) error {
	served, direct, err := crdClients()
	if err != nil {
		return err
	}
	err = checkCRDs(served)
	var outdated *preflight.OutdatedCRDsError
	if !errors.As(err, &outdated) {
		return err
	}
	stop, err := serveNotReady(ctx, o.ProbeAddress, outdated.Error())
	if err != nil {
		return err
	}
	defer stop()
	namespaces := (&preflight.Checker{Watched: o.Watched}).Namespaces()
	for outdated != nil {
		ctrl.Log.Error(outdated, "Waiting for newer CustomResourceDefinitions", "apply", o.applyCRDsCommand())
		if err := controllers.SetOutdatedCRDsCondition(ctx, direct, namespaces, o.applyCRDsCommand()+": "+outdated.Error()); err != nil {
			ctrl.Log.Info("Not all Scanners can report the outdated CustomResourceDefinitions", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outdatedCRDInterval):
		}
		if err := checkCRDs(served); err == nil {
			outdated = nil
		} else if !errors.As(err, &outdated) {
			ctrl.Log.Error(err, "Checking for newer CustomResourceDefinitions failed")
		}
	}
	return nil
}

// applyCRDsCommand returns the command that updates the CRDs, whatever the operator was installed with.
func (o *options) applyCRDsCommand() string {
	pod := o.PodName
	if pod == "" {
		pod = "deploy/scanner-operator-manager"
	}
	return fmt.Sprintf("kubectl -n %s exec %s -- /scanner-operator crds | kubectl apply --server-side --force-conflicts -f -", o.Namespace, pod)
}

// watchCRDs checks the CRDs periodically. It returns an error if older ones have replaced those that this version needs: the process then
// ends, restarts and waits. Only a second check in a row counts, since an API server that has just started serves its documents a moment
// later.
func (op *operator) watchCRDs(ctx context.Context) error {
	served, _, err := crdClients()
	if err != nil {
		return err
	}
	var before *preflight.OutdatedCRDsError
	for {
		wait := crdCheckInterval
		if before != nil {
			wait = outdatedCRDInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		var outdated *preflight.OutdatedCRDsError
		err := op.loops.Run("kinds", func() error { return checkCRDs(served) })
		if !errors.As(err, &outdated) && err != nil {
			ctrl.Log.Error(err, "Checking the CustomResourceDefinitions failed")
		}
		if outdated != nil && before != nil {
			return outdated
		}
		before = outdated
	}
}

// checkCRDs calls preflight.CheckCRDs. A request that is forbidden is only logged: it is usually allowed, and the manager can work without the
// check.
func checkCRDs(served openapi.Client) error {
	err := preflight.CheckCRDs(served)
	if apierrors.IsForbidden(err) {
		ctrl.Log.Info("The CustomResourceDefinitions are not checked: the manager may not read them", "reason", err.Error())
		return nil
	}
	return err
}

func crdClients() (openapi.Client, client.Client, error) {
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
