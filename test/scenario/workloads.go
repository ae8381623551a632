package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// startWorkloads creates the workloads in both namespaces and waits until they run. For the workload whose image does not exist, it waits
// until the image pull has failed.
func (e *Environment) startWorkloads(ctx context.Context) (string, error) {
	for _, namespace := range e.namespaces() {
		if err := e.MakeNamespace(ctx, namespace); err != nil {
			return "", err
		}
	}
	api := func(namespace string) map[string]string {
		return map[string]string{"Namespace": namespace, "API": e.Reference(images.API), "Migrate": e.Reference(images.Migrate)}
	}
	err := e.Apply(ctx, "workloads.yaml", map[string]any{
		"Web": e.Reference(images.Web), "Cache": e.Reference(images.Cache), "Static": e.Reference(images.Static),
		"Ghost": e.missingImage(), "Production": api(e.Production()), "Staging": api(e.Staging()),
	})
	if err != nil {
		return "", err
	}
	if err := e.WaitForRollout(ctx, e.Production(), "deployment/web", "deployment/api", "deployment/static", "statefulset/cache"); err != nil {
		return "", err
	}
	if err := e.WaitForRollout(ctx, e.Staging(), "deployment/api"); err != nil {
		return "", err
	}
	return fmt.Sprintf("web, api, cache and static run in %s, api in %s, ghost cannot be pulled", e.Production(), e.Staging()), wait.Eventually(ctx, shortTimeout, wait.Normally, e.checkGhostNotPulled)
}

func (e *Environment) checkGhostNotPulled(ctx context.Context) error {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(e.Production()), client.MatchingLabels{"app": "ghost"}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if waiting := status.State.Waiting; waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff") {
				return nil
			}
		}
	}
	return errors.New("the pod ghost waits for something else than its image")
}

// startScanners creates a Scanner in both namespaces.
func (e *Environment) startScanners(ctx context.Context) (string, error) {
	if e.Backend == v1alpha1.BackendClair {
		var err error
		if e.clair.indexed, err = e.clairIndexed(ctx); err != nil {
			return "", err
		}
	}
	for _, namespace := range e.namespaces() {
		if err := e.MakeScanner(ctx, namespace, ScannerSettings{Receivers: []Receiver{{Name: "team", Announce: announcedChanges}}}); err != nil {
			return "", err
		}
	}
	return "each with a receiver in Slack, its address in a Secret", nil
}

// announcedChanges are the changes that the receivers of both namespaces announce, including Fixed.
const announcedChanges = "New, FixAvailable, Escalated, Regressed, Fixed"

// ScannerSettings are the settings that differ between Scanners of the demo.
type ScannerSettings struct {
	// Name is the Scanner's name; empty means ScannerName.
	Name string
	// Backend is the Scanner's engine; empty means the environment's.
	Backend v1alpha1.BackendType
	// ClairKey is the pre-shared key for Clair; empty means the correct one.
	ClairKey string
	// FirstScan is the receivers' firstScan setting; empty means Summary.
	FirstScan string
	// GroupWait and GroupInterval are the receivers' delays; 0 means 5 and 10 seconds.
	GroupWait, GroupInterval time.Duration
	// Receivers are the Scanner's receivers; empty means one whose channel is the namespace.
	Receivers []Receiver
}

// Receiver is a receiver of a Scanner of the demo.
type Receiver struct {
	Name string
	// Channel is the argument for Messages; empty means the namespace.
	Channel string
	// Announce are the announced changes, and Workloads the receiver's workload selection; empty means the defaults.
	Announce, Workloads string
}

// MakeScanner creates a Scanner with its receivers and their Secrets.
func (e *Environment) MakeScanner(ctx context.Context, namespace string, settings ScannerSettings) error {
	backend := cmp.Or(settings.Backend, e.Backend)
	receivers := settings.Receivers
	if len(receivers) == 0 {
		receivers = []Receiver{{Name: "team"}}
	}
	urls := map[string]string{}
	for _, r := range receivers {
		urls[r.Name] = WebhookURL(cmp.Or(r.Channel, namespace))
	}
	values := map[string]any{
		"Namespace": namespace, "Name": cmp.Or(settings.Name, ScannerName), "System": SystemNamespace,
		"Receivers": receivers, "URLs": urls, "FirstScan": cmp.Or(settings.FirstScan, "Summary"),
		"GroupWait": cmp.Or(settings.GroupWait, 5*time.Second), "GroupInterval": cmp.Or(settings.GroupInterval, 10*time.Second),
		"Backend": backend, "ClairURL": "",
	}
	if backend == v1alpha1.BackendClair {
		if e.clair == nil {
			return errors.New("this environment has no Clair")
		}
		values["ClairURL"], values["ClairKey"] = clairURL, cmp.Or(settings.ClairKey, e.clair.key)
		values["Webhooks"] = namespace != e.WithBackend(v1alpha1.BackendClair).Staging() // no webhooks are sent to staging's Scanner
	}
	return e.Apply(ctx, "scanner.yaml", values)
}

// Pod is a pod to run.
type Pod struct {
	Name, Image string
	// Init is the image of an init container; empty means no init container.
	Init string
	// Receivers is the value of the pod's receivers annotation; empty means no annotation.
	Receivers string
	// PullSecrets are the names of the pod's image pull secrets.
	PullSecrets []string
}

// RunPods creates pods and waits until all are ready.
func (e *Environment) RunPods(ctx context.Context, namespace string, pods ...Pod) error {
	if err := e.Apply(ctx, "pods.yaml", map[string]any{"Namespace": namespace, "Pods": pods}); err != nil {
		return err
	}
	for _, pod := range pods {
		if _, err := e.Kubectl(ctx, "--namespace", namespace, "wait", "--for=condition=Ready", "--timeout=120s", "pod/"+pod.Name); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return nil
}
