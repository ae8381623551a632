package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// disk is a small volume for a PersistentVolumeClaim of the operator: a file system in memory on the local cluster's node.
type disk struct {
	// what is on the disk, for the name of the fault.
	what string
	// cluster is the directory of the running cluster, and path the mount point, which is the same for the node.
	cluster, path string
	volume        *corev1.PersistentVolume
	// delivery is true if deliveries need the disk.
	delivery bool
}

const (
	// diskSize is enough for the store of some hundred images, with PostgreSQL's own files and its write-ahead log.
	diskSize = 1 << 30
	// diskSlack is what is left of a full disk: the page of a database.
	diskSlack = 4 << 10
	// diskCapacity is what the volume claims to have: more than any claim requests.
	diskCapacity = "100Gi"
)

// newDisk returns the disk for a claim in the operator's namespace. It is not made yet.
func newDisk(cluster, what, claim string, delivery bool) *disk {
	name := "scanner-chaos-" + what
	d := &disk{what: what, cluster: cluster, path: filepath.Join(cluster, "volumes", name), delivery: delivery}
	d.volume = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(diskCapacity)},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: d.path}},
			ClaimRef:               &corev1.ObjectReference{Namespace: scenario.SystemNamespace, Name: claim},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}
	return d
}

// makeClaim creates the claim of the disk, for a disk whose claim no installation has.
func (d *disk) makeClaim(ctx context.Context, api client.Client) error {
	return api.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.volume.Spec.ClaimRef.Namespace, Name: d.volume.Spec.ClaimRef.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: d.volume.Spec.AccessModes,
			Resources:   corev1.VolumeResourceRequirements{Requests: d.volume.Spec.Capacity},
		},
	})
}

// onNode runs a command in the mount namespace of the node, and in its PID namespace, which is that of its /proc.
func (d *disk) onNode(ctx context.Context, command ...string) error {
	node, err := d.node()
	if err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, "nsenter", append([]string{"--target", node, "--pid", "--mount", "--"}, command...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, text)
	}
	return nil
}

// node returns the process ID of the node's first process.
func (d *disk) node() (pid string, err error) {
	text, err := os.ReadFile(filepath.Join(d.cluster, "node.pid"))
	return strings.TrimSpace(string(text)), err
}

// provide mounts the disk and creates its PersistentVolume, which no other claim gets.
func (d *disk) provide(ctx context.Context, api client.Client) error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	if err := d.onNode(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", diskSize), d.volume.Name, d.path); err != nil {
		return err
	}
	return api.Create(ctx, d.volume.DeepCopy())
}

// remove deletes the PersistentVolume and unmounts the disk, also if only a part of it is there.
func (d *disk) remove(ctx context.Context, api client.Client) error {
	err := client.IgnoreNotFound(api.Delete(ctx, d.volume.DeepCopy()))
	for d.isMounted() {
		if unmounting := d.onNode(ctx, "umount", "--lazy", d.path); unmounting != nil {
			return errors.Join(err, unmounting)
		}
	}
	return errors.Join(err, os.RemoveAll(d.path))
}

func (d *disk) isMounted() bool {
	node, err := d.node()
	if err != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/" + node + "/mounts")
	return err == nil && strings.Contains(string(mounts), " "+d.path+" ")
}

// resize gives the disk another size in bytes.
func (d *disk) resize(ctx context.Context, size int64) error {
	return d.onNode(ctx, "mount", "-o", fmt.Sprintf("remount,size=%d", size), d.path)
}

// fault makes the disk full: it gets the size of what is on it.
func (d *disk) fault() fault {
	return fault{
		name: "full disk of " + d.what, lasts: true, delivery: d.delivery,
		begin: func(ctx context.Context) error {
			node, err := d.node()
			if err != nil {
				return err
			}
			var stat syscall.Statfs_t
			if err := syscall.Statfs("/proc/"+node+"/root"+d.path, &stat); err != nil {
				return err
			}
			return d.resize(ctx, int64(stat.Blocks-stat.Bfree)*stat.Bsize+diskSlack)
		},
		end:    func(ctx context.Context) error { return d.resize(ctx, diskSize) },
		exists: d.isMounted,
	}
}

// throttling makes the API server answer requests of manager and notifier with 429: they share a priority level without seats. Such a level still
// executes one request at a time, so one request occupies it. It is a review of a token, as the notifier requests it, whose body does not arrive
// (https://kubernetes.io/docs/concepts/cluster-administration/flow-control/).
func throttling(api client.Client, requests rest.Interface) fault {
	level, schema := throttledLevel()
	occupied, free := context.WithCancel(context.Background())
	return fault{
		name: "API server throttles", lasts: true, delivery: true,
		begin: func(ctx context.Context) error {
			created := level.DeepCopy()
			if err := errors.Join(api.Create(ctx, created), api.Create(ctx, schema.DeepCopy())); err != nil {
				return err
			}
			if err := waitForLevel(ctx, requests, created.UID); err != nil {
				return err
			}
			occupied, free = context.WithCancel(context.WithoutCancel(ctx))
			go occupy(occupied, requests)
			return nil
		},
		end: func(ctx context.Context) error {
			free()
			return errors.Join(client.IgnoreNotFound(api.Delete(ctx, schema.DeepCopy())), client.IgnoreNotFound(api.Delete(ctx, level.DeepCopy())))
		},
	}
}

// throttledLevel returns the priority level without seats, and what assigns requests to it.
func throttledLevel() (*flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.FlowSchema) {
	const name = "scanner-chaos"
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	everything := []string{"*"}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         2, // 1 is reserved for requests that nothing limits
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{account("scanner-operator-manager"), account(notifierAccount)},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: everything, APIGroups: everything, Resources: everything, ClusterScope: true, Namespaces: everything,
				}},
			}},
		},
	}
	return level, schema
}

const (
	notifierAccount = "scanner-operator-notifier"
	notifierUser    = "system:serviceaccount:" + scenario.SystemNamespace + ":" + notifierAccount
)

func account(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{
		Kind: rbacv1.ServiceAccountKind, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: scenario.SystemNamespace, Name: name},
	}
}

// waitForLevel waits until the API server assigns the notifier's requests to a priority level. Before that, the request that occupies the level
// would wait in another one until the API server's timeout of a minute, and the level would execute requests.
func waitForLevel(ctx context.Context, requests rest.Interface, level types.UID) error {
	connection, ok := requests.(*rest.RESTClient)
	if !ok {
		return fmt.Errorf("throttling needs a client that shows the headers of responses, got %T", requests)
	}
	address := requests.Get().AbsPath("/api/v1/namespaces/default/configmaps/any").URL().String()
	return wait.Eventually(ctx, time.Minute, wait.Often, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Impersonate-User", notifierUser)
		response, err := connection.Client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if got := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); got != string(level) {
			return fmt.Errorf("the API server assigns the notifier's requests to the priority level with UID %q, want %q", got, level)
		}
		return nil
	})
}

// occupyPause is the time between two attempts to occupy a level. An earlier request of manager or notifier may be executed meanwhile.
const occupyPause = 100 * time.Millisecond

// occupy keeps a request of the notifier in execution until the context ends.
func occupy(ctx context.Context, requests rest.Interface) {
	for ctx.Err() == nil {
		body, writer := io.Pipe()
		_ = requests.Post().Resource("tokenreviews").SetHeader("Content-Type", "application/json").
			SetHeader("Impersonate-User", notifierUser).
			MaxRetries(0).Body(body).Do(ctx) // it ends with the context, or is refused because the level is occupied
		_ = writer.Close()
		_ = sleep(ctx, occupyPause)
	}
}

// slackFaults returns the failures of Slack. Each is for the next messages. The stand-in records which answers it withheld.
func slackFaults(env *scenario.Environment) (faults []fault) {
	for _, f := range []struct {
		name    string
		failure standin.Failure
	}{
		{"Slack throttles", standin.Failure{Status: http.StatusTooManyRequests, RetryAfter: 2, Times: 3}},
		{"Slack answers 500", standin.Failure{Status: http.StatusInternalServerError, Times: 2}},
		{"Slack accepts and does not answer", standin.Failure{Hang: true}},
		{"Slack accepts and closes", standin.Failure{Drop: true}},
	} {
		faults = append(faults, fault{name: f.name, begin: func(ctx context.Context) error { return env.SlackFails(ctx, f.failure) }})
	}
	return faults
}
