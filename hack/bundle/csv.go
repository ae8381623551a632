package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Files in the directory -manifests that are written by hand.
const (
	baseFile = "scanner-operator.clusterserviceversion.yaml"
	iconFile = "icon.svg"
)

// serviceVersion completes the hand-written ClusterServiceVersion from the manifests.
func serviceVersion(o options, from parts, definitions []definition, published release) (v1alpha1.ClusterServiceVersion, error) {
	csv, err := readBase(o.manifests)
	if err != nil {
		return csv, err
	}
	parsed, err := semver.Parse(o.version)
	if err != nil {
		return csv, fmt.Errorf("-version %q: %w", o.version, err)
	}
	csv.Name = packageName + ".v" + o.version
	csv.Spec.Version = version.OperatorVersion{Version: parsed}
	csv.Spec.Replaces = o.replaces
	deployments, related, err := from.strategies(published)
	if err != nil {
		return csv, err
	}
	cluster, own, err := from.permissions()
	if err != nil {
		return csv, err
	}
	csv.Spec.InstallStrategy = v1alpha1.NamedInstallStrategy{
		StrategyName: v1alpha1.InstallStrategyNameDeployment,
		StrategySpec: v1alpha1.StrategyDetailsDeployment{DeploymentSpecs: deployments, ClusterPermissions: cluster, Permissions: own},
	}
	csv.Spec.RelatedImages = related
	csv.Annotations["containerImage"] = published.Images["scanner-operator"]
	csv.Annotations["createdAt"] = published.Created
	if csv.Annotations["alm-examples"], err = examples(filepath.Join(o.tree, "config", "samples"), definitions); err != nil {
		return csv, err
	}
	return csv, describe(&csv, definitions)
}

func readBase(dir string) (csv v1alpha1.ClusterServiceVersion, err error) {
	text, err := os.ReadFile(filepath.Join(dir, baseFile))
	if err != nil {
		return csv, err
	}
	if err := yaml.UnmarshalStrict(text, &csv); err != nil {
		return csv, fmt.Errorf("%s: %w", baseFile, err)
	}
	icon, err := os.ReadFile(filepath.Join(dir, iconFile))
	csv.Spec.Icon = []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	return csv, err
}

// describe fills the owned CustomResourceDefinitions from their schemas. A kind that the base does not mention is an error. A kind of
// the base that the tree does not have, because the tree is older, is left out.
func describe(csv *v1alpha1.ClusterServiceVersion, definitions []definition) error {
	known := csv.Spec.CustomResourceDefinitions.Owned
	csv.Spec.CustomResourceDefinitions.Owned = nil
	for _, d := range definitions {
		at := slices.IndexFunc(known, func(c v1alpha1.CRDDescription) bool { return c.Name == d.crd.Name })
		if at < 0 {
			return fmt.Errorf("%s: says nothing of %s", baseFile, d.crd.Name)
		}
		one, owned := d.crd.Spec.Versions[0], known[at]
		owned.Kind, owned.Version = d.crd.Spec.Names.Kind, one.Name
		owned.Description = one.Schema.OpenAPIV3Schema.Description
		owned.SpecDescriptors = specDescriptors(*one.Schema.OpenAPIV3Schema)
		owned.StatusDescriptors = statusDescriptors(*one.Schema.OpenAPIV3Schema)
		csv.Spec.CustomResourceDefinitions.Owned = append(csv.Spec.CustomResourceDefinitions.Owned, owned)
	}
	return nil
}

// definition is a CustomResourceDefinition and its file. The bytes of the file go into the bundle.
type definition struct {
	file string
	text []byte
	crd  apiextensionsv1.CustomResourceDefinition
}

func readDefinitions(tree string) ([]definition, error) {
	files, err := filepath.Glob(filepath.Join(tree, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var definitions []definition
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		read := definition{file: filepath.Base(file), text: text}
		if err := yaml.UnmarshalStrict(text, &read.crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(read.crd.Spec.Versions) != 1 || read.crd.Spec.Versions[0].Schema == nil {
			return nil, fmt.Errorf("%s: this program describes kinds of one version, with a schema", file)
		}
		definitions = append(definitions, read)
	}
	if len(definitions) == 0 {
		return nil, errors.New("config/crd/bases holds no CustomResourceDefinition")
	}
	return definitions, nil
}

// examples returns the samples of the operator's kinds as JSON. The shortest file name comes first, since consoles show the first
// example of a kind: scanner.yaml rather than scanner-clair.yaml.
func examples(samples string, definitions []definition) (string, error) {
	files, err := filepath.Glob(filepath.Join(samples, "*.yaml"))
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	var objects []map[string]any
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return "", fmt.Errorf("%s: %w", file, err)
			}
			if isOfGroup(object, definitions[0].crd.Spec.Group) {
				objects = append(objects, object)
			}
		}
	}
	text, err := json.MarshalIndent(objects, "", "  ")
	return string(text), err
}

func isOfGroup(object map[string]any, group string) bool {
	apiVersion, _ := object["apiVersion"].(string)
	return strings.HasPrefix(apiVersion, group+"/")
}
