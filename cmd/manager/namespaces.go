package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// cacheNamespaces returns the watched namespaces for the cache's options; nil means all.
func (o *options) cacheNamespaces() map[string]cache.Config {
	if len(o.Watched) == 0 {
		return nil
	}
	namespaces := map[string]cache.Config{}
	for _, name := range o.Watched {
		namespaces[name] = cache.Config{}
	}
	return namespaces
}

// addPermissionChecker checks periodically which permissions this process has in the namespaces that it watches.
func (op *operator) addPermissionChecker(context.Context) error {
	direct, err := op.newReviewClient()
	if err != nil {
		return err
	}
	op.permissions = &preflight.Checker{
		Client: direct, Cache: op.manager.GetClient(), Watched: op.options.Watched, OperatorNamespace: op.options.Namespace,
		Account: op.options.Namespace + ":" + op.options.Account, Log: ctrl.Log.WithName("permissions"), Metrics: metrics.Registry, Loops: op.loops, OnChange: op.permissionsChanged,
		ByOLM:    os.Getenv(conditionVariable) != "",
		OnExcess: func(advice string) { op.warnOnPod(v1alpha1.ReasonExcessPermissions, advice) },
	}
	return op.manager.Add(manager.RunnableFunc(op.permissions.Run))
}

// permissionsChanged has the Scanners report missing permissions. An event of the operator's own pod reports them, too, since the Scanners may
// be unreadable.
func (op *operator) permissionsChanged(ctx context.Context, _, advice string) {
	op.enqueueScanners(ctx)
	if advice != "" {
		op.warnOnPod(v1alpha1.ReasonMissingPermissions, advice)
	}
}

// warnOnPod creates an event of the operator's own pod.
func (op *operator) warnOnPod(reason, advice string) {
	if op.options.PodName == "" {
		return
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: op.options.Namespace, Name: op.options.PodName},
	}
	op.manager.GetEventRecorder("scanner-operator").Eventf(pod, nil, corev1.EventTypeWarning, reason, "Watch", "%s", advice)
}
