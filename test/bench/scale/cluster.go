package scale

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/test/apiserver"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

//go:embed stages.yaml
var stages []byte

//go:embed audit-policy.yaml
var auditPolicy []byte

// Names of the users of the operators, by which the audit policy selects their requests.
const (
	managerUser = "scanner-operator"
	trivyUser   = "trivy-operator"
)

// systemNamespace is the namespace of the manager.
const systemNamespace = "scanner-operator-system"

// cluster is an API server with etcd, kwok where it is used, and the manager once it is started.
type cluster struct {
	options Options
	dir     string
	server  *apiserver.Server
	audit   *auditLog
	kwok    *process.Process
	// kubelet serves the logs of the pods on all of kwok's nodes.
	kubelet *kubelet
	manager program
	// slack and notifier are nil where nothing is announced.
	slack    *slack
	notifier *process.Process
}

// startCluster starts API server, etcd and kwok, and creates the nodes.
func startCluster(ctx context.Context, options Options) (*cluster, error) {
	return newCluster(options, func(c *cluster) error {
		c.kubelet = newKubelet(c)
		if err := c.startKwok(); err != nil {
			return fmt.Errorf("kwok: %w", err)
		}
		return c.createNodes(ctx)
	})
}

// newCluster starts API server and etcd, and calls prepare.
func newCluster(options Options, prepare func(*cluster) error) (_ *cluster, err error) {
	c := &cluster{options: options}
	if c.dir, err = os.MkdirTemp("", "bench-scale-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if err := c.startServer(); err != nil {
		return nil, err
	}
	return c, prepare(c)
}

func (c *cluster) startServer() (err error) {
	policy, log := filepath.Join(c.dir, "audit-policy.yaml"), filepath.Join(c.dir, "audit.log")
	if err := os.WriteFile(policy, auditPolicy, 0o600); err != nil {
		return err
	}
	c.audit = &auditLog{file: log}
	c.server, err = apiserver.Start(c.options.Root, c.options.Assets, map[string]string{
		"audit-policy-file": policy, "audit-log-path": log, "audit-log-maxsize": "2000", // in MB: keeps the log in one file
	})
	return err
}

func (c *cluster) startKwok() error {
	config, err := c.server.Kubeconfig(c.dir, "kwok")
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(stages, []byte("KUBELET_PORT"), []byte(c.kubelet.port())), 0o600); err != nil {
		return err
	}
	c.kwok, err = process.Start(c.dir, "kwok", exec.Command(filepath.Join(c.options.Bin, "kwok"),
		"--kubeconfig", config, "--config", file, "--manage-all-nodes", "--node-lease-duration-seconds", "40"))
	return err
}

// nodes is the number of nodes. A real node has at most 110 pods; kwok's nodes accept more.
const nodes = 100

func nodeName(i int) string { return fmt.Sprintf("node-%02d", i%nodes) }

func (c *cluster) createNodes(ctx context.Context) error {
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
		if err := c.server.Create(ctx, node); err != nil {
			return err
		}
	}
	return c.server.CreateNamespace(ctx, systemNamespace)
}

// startManager starts the operator as it runs in a cluster, with the fake backend enabled and with additional flags, and waits until it is
// ready.
func (c *cluster) startManager(ctx context.Context, flags ...string) error {
	config, err := c.server.Kubeconfig(c.dir, managerUser)
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	command := exec.Command(filepath.Join(c.options.Bin, "manager"), append(flags,
		"--namespace", systemNamespace, "--data-dir", data, "--spool-dir", filepath.Join(c.dir, "spool"),
		"--worker-image", "registry.example.com/unused", "--enable-fake-backend",
		"--metrics-bind-address", "0", "--api-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0", "--ingest-bind-address", "127.0.0.1:0")...)
	command.Env = append(os.Environ(), "KUBECONFIG="+config)
	c.manager.user = managerUser
	if c.manager.Process, err = process.Start(c.dir, "manager", command); err != nil {
		return err
	}
	return wait.Eventually(ctx, time.Minute, wait.Often, func(context.Context) error {
		if err := c.manager.Alive(); err != nil {
			return err
		}
		// Each controller logs this line when its caches are filled.
		if n := c.manager.Logged("Starting workers"); n < controllers {
			return fmt.Errorf("%d of %d controllers have started", n, controllers)
		}
		return nil
	})
}

// controllers is the number of the manager's controllers: pods, ImageScans, Scanners, notifications.
const controllers = 4

func (c *cluster) stop() error {
	err := errors.Join(c.manager.Stop(), c.notifier.Stop(), c.kwok.Stop(), c.server.Stop(), os.RemoveAll(c.dir))
	if c.slack != nil {
		c.slack.server.Close()
	}
	if c.kubelet != nil {
		c.kubelet.server.Close()
	}
	return err
}
