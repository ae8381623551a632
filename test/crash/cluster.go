package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
	"github.com/scanner-operator/scanner-operator/test/apiserver"
	"github.com/scanner-operator/scanner-operator/test/process"
)

const (
	systemNamespace = "scanner-operator-system"
	managerAccount  = "scanner-operator-manager"
	nodeName        = "node"
	// teams is the number of namespaces, each with a Scanner. receivers is the number of receivers of a Scanner, each with a webhook.
	teams     = 6
	receivers = 2
)

// Intervals of the receivers. They are short to get many messages.
const (
	groupWait     = time.Second
	groupInterval = 2 * time.Second
)

func teamName(i int) string { return fmt.Sprintf("team-%d", i) }

// webhook returns the path of a receiver's webhook.
func webhook(team, receiver int) string {
	return fmt.Sprintf("/services/T0CRASH/%s/%s", teamName(team), receiverName(receiver))
}

func receiverName(i int) string { return fmt.Sprintf("channel-%d", i) }

// cluster is an API server with etcd, and everything that manager and notifier need to start.
type cluster struct {
	options options
	dir     string
	slack   *slack
	server  *apiserver.Server
	// Paths of files: kubeconfig of manager and notifier, token of the manager for the notifier, authority with Slack's certificate.
	kubeconfig, token, authority string
	// database is the server with the store; nil with a store in a file.
	database *server.Server
	// dsn is the data source name of the store on a server. writes records who writes there; nil unless leaders are suspended.
	dsn    string
	writes *writes
	// notifierPort stays the same across restarts, like the address of a Service.
	notifierPort string
}

func startCluster(ctx context.Context, o options, dir string, s *slack) (_ *cluster, err error) {
	c := &cluster{
		options: o, dir: dir, slack: s,
		token: filepath.Join(dir, "token"), authority: filepath.Join(dir, "slack.crt"),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	for _, step := range []func(context.Context) error{c.startServer, c.makeNode, c.makeToken, c.trustSlack, c.makeTeams, c.startStore} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	_, c.notifierPort, err = process.FreeAddress()
	return c, err
}

func (c *cluster) stop() error {
	err := c.server.Stop()
	if c.database != nil {
		err = errors.Join(err, c.database.Close())
	}
	return err
}

// stores are the types of a store, and the servers for tests that have it.
var stores = map[string]struct {
	storeType config.StoreType
	server    string
}{
	"sqlite": {config.SQLite, ""}, "postgres": {config.PostgreSQL, "PostgreSQL"}, "mariadb": {config.MySQL, "MariaDB"},
}

// startStore starts the database server of the store, unless the store is in a file.
func (c *cluster) startStore(context.Context) (err error) {
	wanted := stores[c.options.store]
	if wanted.server == "" {
		return nil
	}
	if c.database, err = server.New(wanted.server, server.Options{}); err != nil {
		return err
	}
	if c.dsn, err = c.database.Create("crash"); err != nil {
		return err
	}
	if c.options.suspend {
		c.writes = &writes{dsn: c.dsn}
	}
	return nil
}

// writeConfig writes the configuration of a manager and returns its file. A server of PostgreSQL knows each manager by its name.
func (c *cluster) writeConfig(name string) (file string, err error) {
	if c.dsn == "" {
		return "", nil
	}
	wanted, dsn := stores[c.options.store], c.dsn
	if wanted.storeType == config.PostgreSQL {
		address, err := url.Parse(c.dsn)
		if err != nil {
			return "", err
		}
		settings := address.Query()
		settings.Set("application_name", name)
		address.RawQuery = settings.Encode()
		dsn = address.String()
	}
	dsnFile := filepath.Join(c.dir, name+".dsn")
	file = filepath.Join(c.dir, name+".yaml")
	return file, errors.Join(os.WriteFile(dsnFile, []byte(dsn+"\n"), 0o600),
		os.WriteFile(file, fmt.Appendf(nil, "store: {type: %s, dsnFile: %s, maxConnections: 5}\n", wanted.storeType, dsnFile), 0o600))
}

func (c *cluster) startServer(context.Context) (err error) {
	if c.server, err = apiserver.Start(c.options.root, c.options.assets, nil); err != nil {
		return err
	}
	c.kubeconfig, err = c.server.Kubeconfig(c.dir, "operator")
	return err
}

func (c *cluster) makeNode(ctx context.Context) error { return c.server.CreateNode(ctx, nodeName) }

// makeToken requests the token that a projected volume provides in a cluster.
func (c *cluster) makeToken(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: managerAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{announce.NotifierAudience}, ExpirationSeconds: ptr.To(int64(time.Hour / time.Second)),
	}}
	err := c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}, account)
	if err != nil {
		return err
	}
	if err := c.server.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return os.WriteFile(c.token, []byte(request.Status.Token), 0o600)
}

func (c *cluster) trustSlack(context.Context) error {
	block := &pem.Block{Type: "CERTIFICATE", Bytes: c.slack.server.Certificate().Raw}
	return os.WriteFile(c.authority, pem.EncodeToMemory(block), 0o600)
}

// makeTeams creates namespaces, each with a Scanner and the Secrets of its webhooks.
func (c *cluster) makeTeams(ctx context.Context) error {
	for team := range teams {
		scanner := &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamName(team), Name: "scanner"},
			Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
		}
		objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamName(team)}}}
		for r := range receivers {
			objects = append(objects, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: teamName(team), Name: receiverName(r)},
				StringData: map[string]string{"url": c.slack.server.URL + webhook(team, r)},
			})
			scanner.Spec.Notifications = append(scanner.Spec.Notifications, v1alpha1.Receiver{
				Name:      receiverName(r),
				Slack:     &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: receiverName(r), Key: "url"}},
				GroupWait: &metav1.Duration{Duration: groupWait}, GroupInterval: &metav1.Duration{Duration: groupInterval},
				FirstScan: v1alpha1.FirstScanAll,
				Announce: []v1alpha1.Change{
					v1alpha1.ChangeNew, v1alpha1.ChangeFixAvailable, v1alpha1.ChangeEscalated, v1alpha1.ChangeRegressed, v1alpha1.ChangeFixed,
				},
			})
		}
		if err := c.create(ctx, append(objects, scanner)...); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.server.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// runImage creates a running pod with an image of its own, and an exception that suppresses one of the image's findings from the beginning.
func (c *cluster) runImage(ctx context.Context, img image) error {
	exception := &v1alpha1.VulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamName(img.team), Name: img.name()},
		Spec: v1alpha1.ExceptionSpec{
			Status: v1alpha1.VEXNotAffected, Justification: "vulnerable_code_not_in_execute_path", Reason: "not reached",
			Vulnerabilities: []string{fake.EvolvingID(img.number, 3)},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamName(img.team), Name: img.name()},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "main", Image: img.repository() + ":1"}}},
	}
	if err := c.create(ctx, exception, pod); err != nil {
		return err
	}
	return c.setImage(ctx, pod, img)
}

// rollOut updates the status of an image's pod to the current digest of the image's tag.
func (c *cluster) rollOut(ctx context.Context, img image) error {
	pod := &corev1.Pod{}
	if err := c.server.Get(ctx, client.ObjectKey{Namespace: teamName(img.team), Name: img.name()}, pod); err != nil {
		return err
	}
	return c.setImage(ctx, pod, img)
}

func (c *cluster) setImage(ctx context.Context, pod *corev1.Pod, img image) error {
	before := pod.DeepCopy()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", ImageID: img.repository() + "@" + img.digest(),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	return c.server.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// deleteException deletes an image's exception.
func (c *cluster) deleteException(ctx context.Context, img image) error {
	return c.server.Delete(ctx, &v1alpha1.VulnerabilityException{ObjectMeta: metav1.ObjectMeta{Namespace: teamName(img.team), Name: img.name()}})
}

// suspension is how long a leader is suspended: twice the lease.
const suspension = 6 * time.Second

// startManager starts the manager as it runs in a pod. The lease is short, so that the next manager does not wait long.
func (c *cluster) startManager(name string) (*process.Process, error) {
	config, err := c.writeConfig(name)
	if err != nil {
		return nil, err
	}
	lease := []string{"--leader-elect-lease-duration=1s", "--leader-elect-renew-deadline=900ms", "--leader-elect-retry-period=150ms"}
	if c.options.suspend {
		lease = []string{"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms"}
	}
	command := exec.Command(filepath.Join(c.options.root, "bin", "manager"),
		"--namespace="+systemNamespace, "--config="+config, "--data-dir="+c.dir, "--spool-dir="+filepath.Join(c.dir, name+".spool"),
		"--notifier-url=https://localhost:"+c.notifierPort, "--notifier-token-file="+c.token,
		"--enable-fake-backend", "--worker-image=unused", "--metrics-bind-address=0", "--api-bind-address=0",
		"--health-probe-bind-address=127.0.0.1:0", "--ingest-bind-address=127.0.0.1:0")
	command.Args = append(command.Args, lease...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "POD_NAME=")
	return process.Start(c.dir, name, command)
}

func (c *cluster) startNotifier(name string) (*process.Process, error) {
	command := exec.Command(filepath.Join(c.options.root, "bin", "notifier"),
		"--kubeconfig="+c.kubeconfig, "--listen=127.0.0.1:"+c.notifierPort, "--health-listen=127.0.0.1:0", "--metrics-listen=",
		"--ca-file="+c.authority, "--allowed-webhook-hosts="+strings.TrimPrefix(c.slack.server.URL, "https://"))
	command.Env = append(os.Environ(), "POD_NAMESPACE="+systemNamespace)
	return process.Start(c.dir, name, command)
}
