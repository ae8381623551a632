package main

import (
	"errors"
	"fmt"
	"io"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// storeVolume is the name of the Deployments' volume for the store, which a Subscription replaces by the PersistentVolumeClaim.
const storeVolume = "store"

// printInstallation prints one file that installs the operator with OLM: all that a bundle cannot contain, and the Subscription. Namespace,
// policies and PersistentVolumeClaim are those of config/default. The policies come before the Subscription, so that they are in force when
// OLM starts the operator.
func printInstallation(o options, out io.Writer) error {
	objects, err := rendered(o.tree)
	if err != nil {
		return err
	}
	var namespace, volume *unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			namespace = object
		case "PersistentVolumeClaim":
			volume = object
		}
	}
	if namespace == nil || volume == nil {
		return errors.New("config/default has no Namespace or no PersistentVolumeClaim for an installation by OLM")
	}
	namespace.SetName(o.namespace)
	volume.SetNamespace(o.namespace)
	return errors.Join(
		writeDocument(out, "The operator's namespace.", namespace),
		printPolicies(o, out),
		writeDocument(out, "Findings, and the record of what was announced.", volume),
		writeDocument(out, "Without target namespaces: the operator serves all namespaces.", operatorGroup(o)),
		writeDocument(out, "The volume replaces the emptyDir of the same name in the bundle's Deployments.", subscription(o, volume.GetName())),
	)
}

func operatorGroup(o options) *operatorsv1.OperatorGroup {
	group := &operatorsv1.OperatorGroup{}
	group.SetGroupVersionKind(operatorsv1.GroupVersion.WithKind("OperatorGroup"))
	group.Name, group.Namespace = packageName, o.namespace
	return group
}

// subscription returns a Subscription to the operator's default channel, with a PersistentVolumeClaim for the store.
func subscription(o options, claim string) *operatorsv1alpha1.Subscription {
	store := corev1.Volume{Name: storeVolume}
	store.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	made := &operatorsv1alpha1.Subscription{Spec: &operatorsv1alpha1.SubscriptionSpec{
		Package: packageName, Channel: o.defaultChannel, CatalogSource: o.source, CatalogSourceNamespace: o.sourceNamespace,
		Config: &operatorsv1alpha1.SubscriptionConfig{Volumes: []corev1.Volume{store}},
	}}
	made.SetGroupVersionKind(operatorsv1alpha1.SchemeGroupVersion.WithKind(operatorsv1alpha1.SubscriptionKind))
	made.Name, made.Namespace = packageName, o.namespace
	return made
}

// writeDocument writes an object as a YAML document with a comment.
func writeDocument(out io.Writer, comment string, object any) error {
	written, err := text(object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "---\n# %s\n%s", comment, written)
	return err
}
