package story

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
)

// startShop runs the workloads in both namespaces and waits until they run; the one whose image does not exist, until its
// node has noticed that.
func (e *Environment) startShop(ctx context.Context) (string, error) {
	for _, namespace := range e.shopNamespaces() {
		if err := e.MakeNamespace(ctx, namespace); err != nil {
			return "", err
		}
	}
	api := func(namespace string) map[string]string {
		return map[string]string{"Namespace": namespace, "API": e.Reference(images.API), "Migrate": e.Reference(images.Migrate)}
	}
	err := e.Apply(ctx, "shop.yaml", map[string]any{
		"Web": e.Reference(images.Web), "Cache": e.Reference(images.Cache), "Static": e.Reference(images.Static),
		"Ghost": e.missing(), "Shop": api(e.Shop()), "Staging": api(e.Staging()),
	})
	if err != nil {
		return "", err
	}
	if err := e.RolledOut(ctx, e.Shop(), "deployment/web", "deployment/api", "deployment/static", "statefulset/cache"); err != nil {
		return "", err
	}
	if err := e.RolledOut(ctx, e.Staging(), "deployment/api"); err != nil {
		return "", err
	}
	return fmt.Sprintf("web, api, cache and static run in %s, api in %s, ghost cannot be pulled", e.Shop(), e.Staging()), Eventually(ctx, soon, e.ghostIsNotPulled)
}

func (e *Environment) ghostIsNotPulled(ctx context.Context) error {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(e.Shop()), client.MatchingLabels{"app": "ghost"}); err != nil {
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

// startScanners makes a Scanner in both namespaces.
func (e *Environment) startScanners(ctx context.Context) (string, error) {
	if e.Backend == v1alpha1.BackendClair {
		var err error
		if e.clair.indexed, err = e.clairIndexed(ctx); err != nil {
			return "", err
		}
	}
	for _, namespace := range e.shopNamespaces() {
		if err := e.MakeScanner(ctx, namespace, ScannerSettings{Receivers: []Receiver{{Name: "team", Announce: announcedChanges}}}); err != nil {
			return "", err
		}
	}
	return "each with a receiver in Slack, its address in a Secret", nil
}

// announcedChanges are what the receivers of both namespaces want to hear of: what is fixed, too.
const announcedChanges = "New, FixAvailable, Escalated, Regressed, Fixed"

// ScannerSettings are what differs between Scanners of the story.
type ScannerSettings struct {
	// Name of the Scanner; ScannerName if empty.
	Name string
	// Backend is its engine; the story's if empty.
	Backend v1alpha1.BackendType
	// ClairKey is the pre-shared key that it speaks to Clair with; the right one if empty.
	ClairKey string
	// FirstScan is the receivers' policy; Summary if empty.
	FirstScan string
	// GroupWait and GroupInterval of the receivers; 5 and 10 seconds if 0.
	GroupWait, GroupInterval time.Duration
	// Receivers of its messages; one with the namespace for its channel if empty.
	Receivers []Receiver
}

// Receiver is one of a Scanner of the story.
type Receiver struct {
	Name string
	// Channel is what Messages are asked for; the namespace if empty.
	Channel string
	// Announce are the changes to hear of, and Workloads those that concern it; the defaults if empty.
	Announce, Workloads string
}

// MakeScanner makes a Scanner with a receiver and all that the receiver needs.
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
			return errors.New("this story has no Clair")
		}
		values["ClairURL"], values["ClairKey"] = clairURL, cmp.Or(settings.ClairKey, e.clair.key)
		values["Webhooks"] = namespace != e.Using(v1alpha1.BackendClair).Staging() // nobody sends any for it
	}
	return e.Apply(ctx, "scanner.yaml", values)
}

// Pod is one to run.
type Pod struct {
	Name, Image string
	// Init is the image of an init container; none if empty.
	Init string
	// Receivers are what its annotation names; it has none if empty.
	Receivers string
	// PullSecrets are the names of the Secrets that it is pulled with.
	PullSecrets []string
}

// RunPods runs pods and waits until all are ready.
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
