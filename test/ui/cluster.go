package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/test/apiserver"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

const (
	systemNamespace = "scanner-operator-system"
	nodeName        = "node"
	scanTimeout     = 3 * time.Minute
)

// images are the images of each namespace. The fake engine derives the findings from the name. Those with "@" are stages of one repository.
// An engine knows one state of a vulnerability, so both must say the same of whether it is exploited.
var images = map[string][]string{
	"shop":  {"vulnerable-web", "riddled-api", "hostile", "failing-job", "slow-import", "frontend"},
	"blog":  {"web", "comments"},
	"infra": {"vulnerable-proxy", "dns"},
	"depot": {"evolving-basket@2", "evolving-basket@3", "listed-scales", "riddled-20000", "vulnerable-door"},
}

// users are the ServiceAccounts that sign in, with the ClusterRoles that each has in which namespace, "" for all. The ClusterRole view is empty
// without a controller manager: system:aggregate-to-view has its rules.
var users = map[string]map[string][]string{
	"administrator": {"": {"scanner-operator-view", "scanner-operator-cluster-view", "system:aggregate-to-view"}},
	"member":        {"shop": {"scanner-operator-view"}},
	"editor":        {"shop": {"scanner-operator-view", "scanner-operator-edit"}},
	"reader":        {"blog": {"scanner-operator-view"}},
	"keeper":        {"depot": {"scanner-operator-view", "scanner-operator-edit", "scanner-operator-report"}},
	// The journeys take the permission of leaver away, change the cluster as root, and let the token of brief expire.
	"leaver":  {"blog": {"scanner-operator-view"}},
	"brief":   {"blog": {"scanner-operator-view"}},
	"root":    {"": {"cluster-admin"}},
	"visitor": {"depot": {"scanner-operator-view"}},
	"nobody":  {},
}

// cluster is an API server with etcd, and the manager.
type cluster struct {
	options options
	dir     string
	server  *apiserver.Server
	// address and url are the same before and after a restart of the manager.
	address, url string
	// endSupervision ends the restarts, and returns when there is none any more.
	endSupervision func()

	mu      sync.Mutex
	manager *process.Process
	starts  int
}

// restartDelay is the time from the manager's end to its next start, in which journeys see that it is away.
const restartDelay = 3 * time.Second

func startCluster(ctx context.Context, o options, dir string) (_ *cluster, err error) {
	c := &cluster{options: o, dir: dir, endSupervision: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if c.server, err = apiserver.Start(o.root, o.assets, nil); err != nil {
		return nil, err
	}
	if err := errors.Join(c.server.CreateNamespace(ctx, systemNamespace), c.server.CreateNode(ctx, nodeName), c.createMessages(ctx)); err != nil {
		return nil, err
	}
	var port string
	if c.address, port, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	c.url = "https://localhost:" + port
	if err := errors.Join(os.WriteFile(c.file("config.yaml"), []byte("{}\n"), 0o600), c.startManager()); err != nil {
		return nil, err
	}
	c.supervise()
	return c, nil
}

// file returns the path of a file of the cluster.
func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// startManager starts the manager with the configuration that is in config.yaml now, and writes its process ID to manager.pid.
func (c *cluster) startManager() error {
	kubeconfig, err := c.server.Kubeconfig(c.dir, "operator")
	if err != nil {
		return err
	}
	command := exec.Command(filepath.Join(c.options.root, "bin", "manager"),
		"--namespace="+systemNamespace, "--data-dir="+c.dir, "--spool-dir="+c.file("spool"), "--api-bind-address="+c.address, "--config="+c.file("config.yaml"),
		"--enable-fake-backend", "--worker-image=unused", "--metrics-bind-address=0",
		"--health-probe-bind-address=127.0.0.1:0", "--ingest-bind-address=127.0.0.1:0", "--leader-elect=false")
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAME=")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	if c.manager, err = process.Start(c.dir, fmt.Sprintf("manager-%d", c.starts), command); err != nil {
		return err
	}
	return os.WriteFile(c.file("manager.pid"), []byte(strconv.Itoa(c.manager.PID())), 0o600)
}

// supervise starts the manager again after it has ended, as the kubelet does.
func (c *cluster) supervise() {
	ending, done := make(chan struct{}), make(chan struct{})
	c.endSupervision = sync.OnceFunc(func() { close(ending); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-c.process().Ended():
			case <-ending:
				return
			}
			select {
			case <-time.After(restartDelay):
			case <-ending:
				return
			}
			if err := c.startManager(); err != nil {
				fmt.Fprintln(os.Stderr, "ui: starting the manager again:", err)
				return
			}
		}
	}()
}

func (c *cluster) process() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.manager
}

func (c *cluster) stop() error {
	c.endSupervision()
	return errors.Join(c.process().Stop(), c.server.Stop())
}

// createMessages creates a Scanner that has sent two messages, one of them with names as somebody writes them who controls an image. The
// manager is not running, so that its store can be opened.
func (c *cluster) createMessages(ctx context.Context) (err error) {
	if err := c.server.CreateNamespace(ctx, "news"); err != nil {
		return err
	}
	scanner := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "news", Name: "default"},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	}
	if err := c.server.Create(ctx, scanner); err != nil {
		return err
	}
	now := time.Now
	db, err := store.OpenSQLite(ctx, c.file("store.db"), func() time.Time { return now() })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// Each namespace has a week without a record. The manager records today.
	for ago := 40; ago > 0; ago-- {
		now = func() time.Time { return time.Now().AddDate(0, 0, -ago) }
		if counts := (store.DailyCounts{ToActOn: 12 + ago*ago%17 + ago/2, Images: 2, Scanned: 2}); ago < 20 || ago > 26 {
			if err := db.RecordDay(ctx, counts, map[string]store.DailyCounts{"shop": counts, "depot": counts}); err != nil {
				return err
			}
		}
	}
	now = time.Now
	if err := db.SetDataVersion(ctx, "grype", store.DataVersion{Version: "v1"}); err != nil {
		return err
	}
	if err := db.SaveVulnerabilityIDs(ctx, "grype", "v1", "CVE-2020-0000\n"); err != nil {
		return err
	}
	for i, item := range []announce.Item{
		{ID: "CVE-2024-0001", Severity: finding.Critical, Package: "openssl", Version: "3.0.0", FixState: finding.FixStateNotFixed, Repository: "registry.example.com/news/web", URL: "https://example.com/CVE-2024-0001"},
		{ID: "CVE-2024-6660", Severity: finding.High, Package: "<img src=x onerror=\"document.title='hacked'\">", Version: "\u202e=cmd", Repository: "registry.example.com/news/web", URL: "javascript:alert(1)"},
	} {
		id := fmt.Sprintf("%032d", i+1)
		message := announce.Message{
			ID: id, Kind: announce.KindFirstScan, Namespace: "news", Scanner: "default", CreatedAt: time.Now().UTC(), Images: 1, Worst: []announce.Item{item},
			Totals: finding.Counts{Critical: 1},
		}
		body, err := json.Marshal(message)
		if err != nil {
			return err
		}
		err = db.RecordAnnouncement(ctx, string(scanner.UID), "team", store.Announcement{
			MessageID: id, At: time.Now(), LogEntry: &store.Message{Kind: string(message.Kind), Title: message.Title(), Body: body, Unconfirmed: i == 1},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill creates everything that the journeys need, waits until the images are scanned, and returns the users' tokens.
func (c *cluster) fill(ctx context.Context) (tokens map[string]string, err error) {
	if err := c.createRoles(ctx); err != nil {
		return nil, err
	}
	for namespace := range images {
		if err := c.fillNamespace(ctx, namespace); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	err = c.server.Create(ctx, &v1alpha1.VulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "zlib-not-reachable"},
		Spec: v1alpha1.ExceptionSpec{
			Vulnerabilities: []string{"CVE-2024-0002"}, Status: v1alpha1.VEXNotAffected, Justification: "vulnerable_code_not_in_execute_path",
			Reason: "No request reaches the decompression.",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("exception: %w", err)
	}
	// It covers no namespace with pods: each of those has a Scanner.
	err = c.server.Create(ctx, &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform"}, Spec: v1alpha1.ClusterScannerSpec{
		NamespaceSelector: &metav1.LabelSelector{}, ExcludeNamespaces: []string{"kube-public"}, ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
	}})
	if err != nil {
		return nil, fmt.Errorf("ClusterScanner: %w", err)
	}
	tokens = map[string]string{}
	for user, roles := range users {
		if tokens[user], err = c.createUser(ctx, user, roles); err != nil {
			return nil, fmt.Errorf("user %s: %w", user, err)
		}
	}
	return tokens, wait.Eventually(ctx, scanTimeout, time.Second, c.isScanned)
}

// createRoles creates the ClusterRoles of the users, as an installation does.
func (c *cluster) createRoles(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(c.options.root, "config", "rbac", "user_roles.yaml"))
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			return err
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		if err := c.server.Create(ctx, &role); err != nil {
			return err
		}
	}
	return nil
}

// fillNamespace creates a namespace with a Scanner and one pod for each of its images.
func (c *cluster) fillNamespace(ctx context.Context, namespace string) error {
	if err := c.server.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	for _, name := range images[namespace] {
		if err := c.createPod(ctx, namespace, name); err != nil {
			return err
		}
	}
	settings := v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}
	return c.server.Create(ctx, &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}, Spec: v1alpha1.ScannerSpec{ScanSettings: settings}})
}

// createPod creates a running pod with one of the images.
func (c *cluster) createPod(ctx context.Context, namespace, name string) error {
	repository, stage, isStage := strings.Cut(name, "@")
	reference := "registry.example.com/" + namespace + "/" + repository
	digest, tag := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(reference))), "1.4.2"
	if isStage {
		number, err := strconv.Atoi(stage)
		if err != nil {
			return err
		}
		digest, tag = fake.EvolvingDigest(1, number), "1.4."+stage
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ReplaceAll(name, "@", "-")},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "main", Image: reference + ":" + tag}}},
	}
	if err := c.server.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", ImageID: reference + "@" + digest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	return c.server.Status().Update(ctx, pod)
}

// createUser creates a ServiceAccount with its role bindings, and returns a token that lasts an hour.
func (c *cluster) createUser(ctx context.Context, name string, roles map[string][]string) (token string, err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}
	if err := c.server.Create(ctx, account); err != nil {
		return "", err
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: name}}
	for namespace, names := range roles {
		for _, role := range names {
			reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
			var binding client.Object = &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + strings.ReplaceAll(role, ":", "-")}, Subjects: subjects, RoleRef: reference,
			}
			if namespace == "" {
				binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + strings.ReplaceAll(role, ":", "-")}, Subjects: subjects, RoleRef: reference}
			}
			if err := c.server.Create(ctx, binding); err != nil {
				return "", err
			}
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(time.Hour / time.Second))}}
	if err := c.server.SubResource("token").Create(ctx, account, request); err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// isScanned returns an error until each Scanner has a result for all images that can have one.
func (c *cluster) isScanned(ctx context.Context) error {
	if err := c.process().Alive(); err != nil {
		return err
	}
	for namespace, names := range images {
		var scanner v1alpha1.Scanner
		if err := c.server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &scanner); err != nil {
			return err
		}
		want := v1alpha1.ImageCounts{Total: int32(len(names))}
		for _, name := range names {
			switch {
			case strings.Contains(name, "failing"):
				want.Failed++
			case strings.Contains(name, "slow"):
				want.Pending++
			default:
				want.Scanned++
			}
		}
		if scanner.Status.Images != want {
			return fmt.Errorf("images of %s: %+v, want %+v", namespace, scanner.Status.Images, want)
		}
	}
	return nil
}
