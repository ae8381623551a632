package main

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workerPolicy is the admission policy that contains the worker's image. placeholder is the worker's image name in config/default.
const (
	workerPolicy = "scanner-operator-manager-jobs"
	placeholder  = "scanner-grype"
)

// printPolicies prints the admission policies of config/default for an installation by OLM. They contain the namespace. They allow the
// worker's image by its repository, with any digest: OLM upgrades the operator automatically, and a policy with a digest would then deny
// the new worker.
func printPolicies(o options, out io.Writer) error {
	objects, err := rendered(o.tree)
	if err != nil {
		return err
	}
	divided, err := divide(objects)
	if err != nil {
		return err
	}
	published, err := readRelease(o.images)
	if err != nil {
		return err
	}
	worker, err := published.image(placeholder)
	if err != nil {
		return err
	}
	repository, _, _ := strings.Cut(worker, "@")
	for _, policy := range divided.policies {
		changed, err := forNamespace(policy, o.namespace, repository)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", changed); err != nil {
			return err
		}
	}
	return nil
}

// forNamespace rewrites a policy for the given namespace, and for every digest of the given repository.
func forNamespace(policy *unstructured.Unstructured, namespace, repository string) (string, error) {
	if policy.GetName() == workerPolicy && policy.GetKind() == "ValidatingAdmissionPolicy" {
		variables, _, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
		if err != nil {
			return "", err
		}
		for _, variable := range variables {
			if named := variable.(map[string]any); named["name"] == "workerImage" {
				named["expression"] = fmt.Sprintf("object.spec.template.spec.containers[0].?image.orValue('').startsWith('%[1]s@sha256:') ? "+
					"object.spec.template.spec.containers[0].image : '%[1]s@sha256:…'", repository)
			}
		}
		if err := unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables"); err != nil {
			return "", err
		}
	}
	written, err := text(withoutNamespace(policy))
	return strings.ReplaceAll(string(written), "system:serviceaccount:scanner-operator-system:", "system:serviceaccount:"+namespace+":"), err
}
