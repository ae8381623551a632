package clair

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/apiserver"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Each image runs in teamsEach of the namespaces. Each namespace pulls it with its own secret and so has a report of its own: 1,000
// reports in all.
const (
	namespaces = 10
	teamsEach  = 2
	// reports is the number of stored reports and of ImageScans.
	reports = imageCount * teamsEach
	// writers is the number of concurrent workers that push images and create pods.
	writers         = 8
	nodeName        = "node"
	pullSecret      = "registry"
	scannerName     = "scanner"
	systemNamespace = "scanner-operator-system"
)

func namespaceName(i int) string { return fmt.Sprintf("team-%02d", i%namespaces) }

// cluster is an API server with pods whose status says that they run, and the manager.
type cluster struct {
	*installation
	content *content
	server  *apiserver.Server
	manager *process.Process
}

// startCluster pushes all images and creates the pods that run them. The caller must stop the returned cluster, even after an error.
func startCluster(ctx context.Context, i *installation) (c *cluster, err error) {
	c = &cluster{installation: i}
	i.options.Progress("%d images on %d bases are made", imageCount, baseCount)
	if c.content, err = newContent(); err != nil {
		return c, err
	}
	for _, step := range []func(context.Context) error{c.startServer, c.createNamespaces, c.runPods} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) startServer(context.Context) (err error) {
	c.server, err = apiserver.Start(c.options.Root, c.options.Assets, nil)
	return err
}

// createNamespaces creates the node and the namespaces with their pull secrets.
func (c *cluster) createNamespaces(ctx context.Context) error {
	if err := c.server.CreateNode(ctx, nodeName); err != nil {
		return err
	}
	names := []string{systemNamespace}
	for i := range namespaces {
		names = append(names, namespaceName(i))
	}
	for _, name := range names {
		if err := c.server.CreateNamespace(ctx, name); err != nil {
			return err
		}
		if err := c.server.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: pullSecret}, Type: corev1.SecretTypeDockerConfigJson,
			StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{"` + c.registry + `":{"username":"somebody","password":"something"}}}`},
		}); err != nil {
			return err
		}
	}
	return nil
}

// runPods pushes the images and creates the pods that run them in their namespaces.
func (c *cluster) runPods(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n, image := range c.content.images {
		group.Go(func() error {
			repository := fmt.Sprintf("%s/service-%03d", c.registry, n)
			digest, err := push(ctx, repository, image)
			if err != nil {
				return err
			}
			for k := range teamsEach {
				if err := c.runPod(ctx, namespaceName(n+k*namespaces/teamsEach), fmt.Sprintf("service-%03d", n), repository, digest); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func push(ctx context.Context, repository string, image v1.Image) (digest string, err error) {
	reference, err := build.Push(ctx, repository+":1", image)
	if err != nil {
		return "", err
	}
	return reference.DigestStr(), nil
}

// runPod creates a pod with the status of a running one.
func (c *cluster) runPod(ctx context.Context, namespace, name, repository, digest string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, ImagePullSecrets: []corev1.LocalObjectReference{{Name: pullSecret}},
			Containers: []corev1.Container{{Name: "service", Image: repository + ":1"}},
		},
	}
	if err := c.server.Create(ctx, pod); err != nil {
		return err
	}
	now := metav1.Now()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "service", Image: repository + ":1", ImageID: repository + "@" + digest, ContainerID: "containerd://" + namespace + name,
		Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}}
	return c.server.Status().Update(ctx, pod)
}

// createScanners creates a Scanner in each namespace, which starts the scans.
func (c *cluster) createScanners(ctx context.Context) error {
	for i := range namespaces {
		if err := c.server.Create(ctx, &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(i), Name: scannerName},
			Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{URL: c.counted}}}},
		}); err != nil {
			return err
		}
	}
	return nil
}

// startManager starts the operator as it runs in a cluster, and waits until it is ready.
func (c *cluster) startManager(ctx context.Context, reportsPerSecond int) error {
	kubeconfig, err := c.server.Kubeconfig(c.dir, "manager")
	if err != nil {
		return err
	}
	config, err := yaml.Marshal(map[string]any{
		// The database listing does not exist. The manager requests it from this machine only.
		"grype":      map[string]any{"database": map[string]any{"url": c.settings.Feeds + "/grype"}},
		"registries": []any{map[string]any{"host": c.registry, "plainHTTP": true}},
		"clair": map[string]any{
			"pollInterval": "5s", "reportsPerSecond": reportsPerSecond,
			"instances": []any{map[string]any{"url": c.counted, "updaters": expectedVulnerabilities()}},
		},
	})
	if err != nil {
		return err
	}
	file, data := filepath.Join(c.dir, "config.yaml"), filepath.Join(c.dir, "data")
	if err := errors.Join(os.WriteFile(file, config, 0o600), os.MkdirAll(data, 0o700)); err != nil {
		return err
	}
	probe, _, err := process.FreeAddress()
	if err != nil {
		return err
	}
	command := exec.Command(filepath.Join(c.options.Bin, "manager"),
		"--namespace", systemNamespace, "--config", file, "--data-dir", data, "--spool-dir", filepath.Join(c.dir, "spool"),
		"--worker-image", "registry.example.com/unused", "--leader-elect=false", "--api-bind-address", "0",
		"--metrics-bind-address", "0", "--health-probe-bind-address", probe, "--ingest-bind-address", "127.0.0.1:0")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if c.manager, err = process.Start(c.dir, "manager", command); err != nil {
		return err
	}
	return wait.Eventually(ctx, waitTimeout, wait.Often, func(context.Context) error {
		return errors.Join(c.manager.Alive(), isReady("http://"+probe+"/readyz"))
	})
}

func isReady(address string) error {
	response, err := http.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the manager is not ready: %s", response.Status)
	}
	return nil
}

// covered returns an error unless every Scanner has scanned every image.
func (c *cluster) covered(ctx context.Context) error {
	var scanners v1alpha1.ScannerList
	if err := errors.Join(c.manager.Alive(), c.server.List(ctx, &scanners)); err != nil {
		return err
	}
	var missing []string
	for _, s := range scanners.Items {
		if counts := s.Status.Images; counts.Total != reports/namespaces || counts.Scanned != reports/namespaces {
			missing = append(missing, fmt.Sprintf("%s: %+v", s.Namespace, counts))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("expected %d images scanned: %s", reports/namespaces, strings.Join(missing, "; "))
	}
	return nil
}

// findings returns how many ImageScans have a given number of findings, by that number.
func (c *cluster) findings(ctx context.Context) (map[int]int, error) {
	var scans v1alpha1.ImageScanList
	if err := errors.Join(c.manager.Alive(), c.server.List(ctx, &scans)); err != nil {
		return nil, err
	}
	have := map[int]int{}
	for _, scan := range scans.Items {
		if f := scan.Status.Findings; f != nil {
			have[int(f.Critical+f.High+f.Medium+f.Low+f.Negligible+f.Unknown)]++
		}
	}
	return have, nil
}

func (c *cluster) stop() error { return errors.Join(c.manager.Stop(), c.server.Stop()) }
