package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// maxCreateBytes bounds the file of the command create: that of a ConfigMap.
const maxCreateBytes = 1 << 20

// kindsWithReady are the kinds whose Ready condition the manager sets when it first sees an object.
var kindsWithReady = []string{"Scanner", "ClusterScanner"}

// runCreate creates the objects of a file. It connects with $KUBECONFIG, or as the pod that it runs in.
func runCreate(ctx context.Context, args []string, out io.Writer) error {
	work := creator{out: out, connect: connectStrictly, interval: time.Second, now: time.Now}
	if err := work.parse(args); err != nil {
		return err
	}
	setLogger("info")
	return work.run(ctx)
}

// connectStrictly returns a client for requests whose unknown fields are an error. A client knows the kinds that the cluster served when it
// was made.
func connectStrictly() (client.Client, error) {
	cluster, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: set KUBECONFIG, or run it in a pod: %w", err)
	}
	c, err := client.New(cluster, client.Options{})
	if err != nil {
		return nil, err
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict), nil
}

// creator creates objects of the operator's own kinds. It changes no object that exists, unless applyAs is set. It waits for what "kubectl
// apply" of one file cannot wait for: until the API server serves a CustomResourceDefinition that was created a moment before, and knows a new
// permission.
type creator struct {
	objects           []*unstructured.Unstructured
	operatorNamespace string
	timeout           time.Duration
	// applyAs is the field manager as which the objects are applied, also those that exist; empty: they are only created.
	applyAs string

	out      io.Writer
	connect  func() (client.Client, error)
	interval time.Duration
	now      func() time.Time
}

func (c *creator) parse(args []string) error {
	flags := newFlags("create")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Minute, "how long to wait until the cluster serves the kinds and permits to create the objects")
	flags.StringVar(&c.operatorNamespace, "operator-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), defaultNamespace),
		"the operator's own namespace (default $POD_NAMESPACE, else "+defaultNamespace+")")
	flags.StringVar(&c.applyAs, "apply-as", "",
		"apply the objects as this field manager (server-side apply), so that those that exist are changed, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("name one file with the objects to create; there are %d", flags.NArg())
	}
	if c.timeout <= 0 {
		return errors.New("--timeout: must be more than 0")
	}
	var err error
	if c.objects, err = readOwnObjects(flags.Arg(0)); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	return nil
}

// readOwnObjects reads the YAML documents of a file. Each must be an object of one of the operator's kinds.
func readOwnObjects(name string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxCreateBytes+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxCreateBytes {
		return nil, fmt.Errorf("more than %d bytes", maxCreateBytes)
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF) && len(objects) == 0:
			return nil, errors.New("no object")
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) == 0: // a document with comments only
			continue
		case object.GroupVersionKind().Group != v1alpha1.GroupVersion.Group:
			return nil, fmt.Errorf("%q of %q: only kinds of %s can be created", object.GetKind(), object.GetAPIVersion(), v1alpha1.GroupVersion.Group)
		case object.GetName() == "":
			return nil, fmt.Errorf("%s: metadata.name is missing", object.GetKind())
		}
		objects = append(objects, &object)
	}
}

func (c *creator) run(ctx context.Context) error {
	var errs []error
	for _, object := range c.objects {
		if err := c.create(ctx, object); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", describe(object), err))
		}
	}
	return errors.Join(errs...)
}

// create creates one object, and retries until the timeout unless the API server rejects the object itself.
func (c *creator) create(ctx context.Context, object *unstructured.Unstructured) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, c.interval, c.timeout, true, func(ctx context.Context) (bool, error) {
		cluster, err := c.connect()
		if err != nil {
			return false, err
		}
		done, err := c.createOrApply(ctx, cluster, object)
		switch {
		case err == nil:
			fmt.Fprintf(c.out, "%s: %s\n", describe(object), done)
			return true, c.setWaiting(ctx, cluster, object)
		case apierrors.IsAlreadyExists(err):
			fmt.Fprintf(c.out, "%s: exists already, not changed\n", describe(object))
			return true, nil
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return false, err
		}
		if last == nil || last.Error() != err.Error() {
			fmt.Fprintf(c.out, "%s: not yet: %v\n", describe(object), err)
		}
		last = err
		return false, nil
	})
	if wait.Interrupted(err) && last != nil {
		return fmt.Errorf("not created within %s: %w", c.timeout, last)
	}
	return err
}

// createOrApply makes one attempt, and returns what it does in one word.
func (c *creator) createOrApply(ctx context.Context, cluster client.Client, object *unstructured.Unstructured) (done string, err error) {
	if c.applyAs == "" {
		return "created", cluster.Create(ctx, object)
	}
	// What the file says wins over changes by others of the same fields.
	return "applied", cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(c.applyAs), client.ForceOwnership)
}

// setWaiting gives a new Scanner or ClusterScanner the condition Ready=Unknown, which says what to do if no manager ever reports on it. It is
// the only place for that: a manager that cannot start has no voice. A condition that the manager has set meanwhile stays.
func (c *creator) setWaiting(ctx context.Context, cluster client.Client, object *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	if !slices.Contains(kindsWithReady, object.GetKind()) || len(conditions) > 0 {
		return nil
	}
	condition := map[string]any{
		"type": v1alpha1.ConditionReady, "status": string(metav1.ConditionUnknown), "reason": v1alpha1.ReasonWaitingForManager,
		"message": fmt.Sprintf(
			"The manager has not started yet. If that takes longer than minutes: kubectl -n %s get pods,pvc; "+
				"a PersistentVolumeClaim that is Pending needs a default StorageClass, see docs/operate/store.md#without-a-default-storageclass",
			c.operatorNamespace),
		"lastTransitionTime": c.now().UTC().Format(time.RFC3339),
	}
	if err := unstructured.SetNestedSlice(object.Object, []any{condition}, "status", "conditions"); err != nil {
		return err
	}
	// The resource version is that of the creation, so that a conflict means that the manager was faster.
	err := cluster.Status().Update(ctx, object)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		fmt.Fprintf(c.out, "%s: its condition could not be set: %v\n", describe(object), err)
	}
	return nil
}

func describe(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
