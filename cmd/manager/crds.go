package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// waitForCRDs waits until the cluster serves the operator's kinds with all fields that this version has. Meanwhile the process is alive and
// not ready, and the Scanners have a condition with the reason.
func (op *operator) waitForCRDs(ctx context.Context, direct client.Client) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	op.crds = preflight.CRDWatcher{Served: served.OpenAPIV3(), Log: ctrl.Log, Loops: op.loops}
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	return op.crds.Wait(ctx, func(outdated *preflight.OutdatedCRDsError) (err error) {
		if stop == nil {
			if stop, err = preflight.ServeNotReady(ctx, op.options.ProbeAddress, outdated.Error()); err != nil {
				return err
			}
		}
		apply := op.options.applyCRDsCommand()
		ctrl.Log.Error(outdated, "Waiting for newer CustomResourceDefinitions", "apply", apply)
		if err := controllers.SetOutdatedCRDsCondition(ctx, direct, op.options.namespaces(), apply+": "+outdated.Error()); err != nil {
			ctrl.Log.Info("Not all Scanners can report the outdated CustomResourceDefinitions", "reason", err.Error())
		}
		return nil
	})
}

// applyCRDsCommand returns the command that updates the CRDs, whatever the operator was installed with.
func (o *options) applyCRDsCommand() string {
	pod := o.PodName
	if pod == "" {
		pod = "deploy/scanner-operator-manager"
	}
	return fmt.Sprintf("kubectl -n %s exec %s -- /scanner-operator crds | kubectl apply --server-side --force-conflicts -f -", o.Namespace, pod)
}
