package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	registrybundle "github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// root of the project.
const root = "../.."

// check returns the problems of a bundle; empty if there are none.
type check func(loadedBundle) []string

// loadedBundle is a bundle in a directory, and its parsed content.
type loadedBundle struct {
	dir    string
	bundle *manifests.Bundle
}

func open(dir string) (loadedBundle, error) {
	read, err := manifests.GetBundleFromDir(dir)
	if err == nil && read.CSV == nil {
		err = fmt.Errorf("%s: no ClusterServiceVersion", dir)
	}
	return loadedBundle{dir, read}, err
}

// checks are all checks by name.
var checks = map[string]check{
	"validators of the catalogs":            validators,
	"format of the directory":               format,
	"scorecard":                             scorecard,
	"images by digest":                      imagesByDigest,
	"examples are the samples":              checkExamples,
	"icon":                                  checkIcon,
	"install mode":                          installMode,
	"kinds":                                 kinds,
	"annotations and labels":                checkLabels,
	"definitions are those of config/crd":   checkDefinitions,
	"a descriptor for every field":          checkDescriptors,
	"OLM v1":                                olmV1,
	"the store's volume can be replaced":    checkStoreVolume,
	"features that OpenShift's console has": features,
}

// validators runs the validators of operator-sdk's suite operatorframework, which the community catalogs run, too.
func validators(g loadedBundle) (problems []string) {
	all := validation.DefaultBundleValidators.WithValidators(
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.GoodPracticesValidator, validation.AlphaDeprecatedAPIsValidator, validation.ObjectValidator,
	)
	for _, result := range all.Validate(append(g.bundle.ObjectsToValidate(), map[string]string{"k8s-version": "1.37"})...) {
		for _, found := range append(result.Errors, result.Warnings...) {
			problems = append(problems, found.Error())
		}
	}
	return problems
}

func format(g loadedBundle) []string {
	log := logrus.New()
	log.SetOutput(io.Discard)
	if err := registrybundle.NewImageValidator(nil, logrus.NewEntry(log)).ValidateBundleFormat(g.dir); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// scorecard implements operator-sdk's olm-crds-have-resources, olm-crds-have-validation, olm-spec-descriptors, olm-status-descriptors
// and basic-check-spec, which need a cluster.
func scorecard(g loadedBundle) (problems []string) {
	for _, owned := range g.bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		if len(owned.Resources) == 0 {
			problems = append(problems, owned.Name+": has no resources")
		}
		if len(owned.StatusDescriptors) == 0 {
			problems = append(problems, owned.Name+": has no statusDescriptors")
		}
		shown := 0
		for _, example := range examplesOf(g.bundle.CSV, owned.Kind) {
			shown++
			spec, _, _ := unstructured.NestedMap(example, "spec")
			if len(spec) == 0 {
				problems = append(problems, owned.Name+": the example has no spec")
			}
			schema := g.schema(owned.Name).Properties["spec"]
			for key := range spec {
				if !slices.ContainsFunc(owned.SpecDescriptors, func(d v1alpha1.SpecDescriptor) bool { return d.Path == key }) {
					problems = append(problems, fmt.Sprintf("%s: spec.%s of the example has no descriptor", owned.Name, key))
				}
				if _, known := schema.Properties[key]; !known {
					problems = append(problems, fmt.Sprintf("%s: the schema has no spec.%s, which the example has", owned.Name, key))
				}
			}
		}
		if shown == 0 {
			problems = append(problems, owned.Name+": has no example")
		}
	}
	return problems
}

func (g loadedBundle) schema(definition string) schema {
	for _, crd := range g.bundle.V1CRDs {
		if crd.Name == definition {
			return *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	return schema{}
}

func examplesOf(csv *v1alpha1.ClusterServiceVersion, kind string) (examples []map[string]any) {
	var all []map[string]any
	if err := json.Unmarshal([]byte(csv.Annotations["alm-examples"]), &all); err != nil {
		return nil
	}
	for _, example := range all {
		if kind == "" || example["kind"] == kind {
			examples = append(examples, example)
		}
	}
	return examples
}

// imagesByDigest checks that relatedImages, which mirrors copy, contains every image that is used.
func imagesByDigest(g loadedBundle) (problems []string) {
	related := map[string]bool{}
	for _, one := range g.bundle.CSV.Spec.RelatedImages {
		related[one.Image] = true
		if _, digest, found := strings.Cut(one.Image, "@sha256:"); !found || len(digest) != 64 {
			problems = append(problems, one.Image+": relatedImages has it without a digest")
		}
	}
	variables := 0
	for _, deployment := range g.bundle.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			used := []string{container.Image}
			for _, variable := range container.Env {
				if strings.HasPrefix(variable.Name, "RELATED_IMAGE_") {
					used = append(used, variable.Value)
					variables++
				}
			}
			for _, image := range used {
				if !related[image] {
					problems = append(problems, fmt.Sprintf("%s: relatedImages lacks %s", deployment.Name, image))
				}
			}
		}
	}
	if variables == 0 {
		problems = append(problems, "no container has a variable RELATED_IMAGE_…")
	}
	if manager := g.bundle.CSV.Annotations["containerImage"]; !related[manager] {
		problems = append(problems, fmt.Sprintf("annotation containerImage: relatedImages lacks %q", manager))
	}
	return problems
}

// checkExamples checks that the examples in consoles equal the documented samples.
func checkExamples(g loadedBundle) []string {
	var samples []map[string]any
	files, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return []string{err.Error()}
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var sample map[string]any
			if err := yaml.Unmarshal(document, &sample); err != nil {
				return []string{err.Error()}
			}
			if sample["apiVersion"] == "scanner-operator.io/v1alpha1" {
				samples = append(samples, sample)
			}
		}
	}
	byName := cmp.Transformer("byName", func(objects []map[string]any) map[string]any {
		named := map[string]any{}
		for _, object := range objects {
			name, _, _ := unstructured.NestedString(object, "metadata", "name")
			// The Scanners of both engines have the same name, since a namespace has one of them.
			engine, _, _ := unstructured.NestedString(object, "spec", "backend", "type")
			named[fmt.Sprint(object["kind"], "/", name, "/", engine)] = object
		}
		return named
	})
	if diff := cmp.Diff(samples, examplesOf(g.bundle.CSV, ""), byName); diff != "" {
		return []string{"examples differ from config/samples (-samples +examples):\n" + diff}
	}
	first := examplesOf(g.bundle.CSV, "Scanner")[0]
	if engine, _, _ := unstructured.NestedString(first, "spec", "backend", "type"); engine != "Grype" {
		return []string{"the first example of a Scanner is not that of config/samples/scanner.yaml"}
	}
	return nil
}

func checkIcon(g loadedBundle) []string {
	if len(g.bundle.CSV.Spec.Icon) != 1 {
		return []string{"there is not one icon"}
	}
	icon := g.bundle.CSV.Spec.Icon[0]
	picture, err := base64.StdEncoding.DecodeString(icon.Data)
	if err != nil {
		return []string{"icon: " + err.Error()}
	}
	var svg struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Width   int      `xml:"width,attr"`
		Height  int      `xml:"height,attr"`
	}
	if err := xml.Unmarshal(picture, &svg); err != nil {
		return []string{"icon: " + err.Error()}
	}
	if icon.MediaType != "image/svg+xml" || svg.Width == 0 || svg.Width != svg.Height {
		return []string{fmt.Sprintf("icon: %s of %d by %d, want a square image/svg+xml", icon.MediaType, svg.Width, svg.Height)}
	}
	return nil
}

func installMode(g loadedBundle) (problems []string) {
	modes := g.bundle.CSV.Spec.InstallModes
	if len(modes) != 4 {
		problems = append(problems, fmt.Sprintf("%d install modes are listed, want 4", len(modes)))
	}
	for _, mode := range modes {
		if mode.Supported != (mode.Type == v1alpha1.InstallModeTypeAllNamespaces) {
			problems = append(problems, fmt.Sprintf("install mode %s: supported is %t", mode.Type, mode.Supported))
		}
	}
	return problems
}

// kinds checks that the bundle has no kind that an installer or a catalog refuses, and no object with a namespace.
func kinds(g loadedBundle) (problems []string) {
	for _, object := range g.bundle.Objects {
		kind := object.GetKind()
		if supported, _ := registrybundle.IsSupported(kind); !supported || kind == "NetworkPolicy" || kind == "ServiceAccount" {
			problems = append(problems, fmt.Sprintf("%s %s: does not belong in a bundle", kind, object.GetName()))
		}
		if object.GetNamespace() != "" {
			problems = append(problems, fmt.Sprintf("%s %s: names a namespace", kind, object.GetName()))
		}
	}
	if _, err := os.Stat(filepath.Join(g.dir, "metadata", "dependencies.yaml")); err == nil {
		problems = append(problems, "metadata/dependencies.yaml: OLM v1 refuses dependencies")
	}
	return problems
}

func checkLabels(g loadedBundle) (problems []string) {
	text, err := os.ReadFile(filepath.Join(g.dir, "metadata", "annotations.yaml"))
	if err != nil {
		return []string{err.Error()}
	}
	var metadata struct{ Annotations map[string]string }
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return []string{err.Error()}
	}
	recipe, err := os.ReadFile(g.dir + ".Dockerfile")
	if err != nil {
		return []string{err.Error()}
	}
	labels := map[string]string{}
	for line := range strings.Lines(string(recipe)) {
		if label, found := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); found {
			name, value, _ := strings.Cut(label, "=")
			labels[name] = value
		}
	}
	if diff := cmp.Diff(metadata.Annotations, labels); diff != "" {
		problems = append(problems, "labels differ from metadata/annotations.yaml (-annotations +labels):\n"+diff)
	}
	return problems
}

func checkDefinitions(g loadedBundle) []string {
	ours, err := readDefinitions(root)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, one := range ours {
		text, err := os.ReadFile(filepath.Join(g.dir, "manifests", one.file))
		if err != nil || !bytes.Equal(text, one.text) {
			problems = append(problems, fmt.Sprintf("%s: is not that of config/crd/bases (%v)", one.file, err))
		}
	}
	if len(ours) != len(g.bundle.V1CRDs) {
		problems = append(problems, fmt.Sprintf("%d definitions, config/crd/bases has %d", len(g.bundle.V1CRDs), len(ours)))
	}
	return problems
}

// checkDescriptors walks the schemas independently of the generator. Every field must have a descriptor with a name and a
// description.
func checkDescriptors(g loadedBundle) (problems []string) {
	for _, owned := range g.bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		described := map[string]bool{}
		for _, d := range owned.SpecDescriptors {
			described["spec."+d.Path] = d.DisplayName != "" && d.Description != "" // TestEditorsFollowTheSchema covers the editors
		}
		for _, d := range owned.StatusDescriptors {
			described["status."+d.Path] = d.DisplayName != "" && d.Description != "" && len(d.XDescriptors) > 0
		}
		for _, part := range []string{"spec", "status"} {
			walk(part, g.schema(owned.Name).Properties[part], func(path string) bool {
				if path == "status.columns" { // for kubectl; the console has the fields that it repeats
					return false
				}
				whole, named := described[path]
				if !named || !whole {
					problems = append(problems, fmt.Sprintf("%s: %s has no whole descriptor", owned.Kind, path))
				}
				return !isKubernetesType(path)
			})
		}
	}
	return problems
}

// isKubernetesType reports whether a path is a Kubernetes type, whose fields are not described.
func isKubernetesType(path string) bool {
	return slices.ContainsFunc([]string{"conditions", "resources", "odSelector", "amespaceSelector", "fromNamespaces", "nodeSelector", "tolerations"},
		func(end string) bool { return strings.HasSuffix(path, end) })
}

func walk(path string, within schema, visit func(string) bool) {
	for name, one := range within.Properties {
		if !visit(path + "." + name) {
			continue
		}
		walk(path+"."+name, one, visit)
		if one.Items != nil && one.Items.Schema != nil {
			walk(path+"."+name+"[0]", *one.Items.Schema, visit)
		}
	}
}

// olmV1 implements the rules of operator-controller for a bundle (internal/operator-controller/rukpak/render/registryv1/validators),
// except for those about webhooks, which the bundle does not have.
func olmV1(g loadedBundle) (problems []string) {
	csv, names := g.bundle.CSV, map[string]bool{}
	for _, deployment := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		if names[deployment.Name] {
			problems = append(problems, deployment.Name+": two Deployments of this name")
		}
		names[deployment.Name] = true
		problems = append(problems, utilvalidation.IsDNS1123Subdomain(deployment.Name)...)
	}
	definitions := map[string]bool{}
	for _, crd := range g.bundle.V1CRDs {
		if definitions[crd.Name] {
			problems = append(problems, crd.Name+": two definitions of this name")
		}
		definitions[crd.Name] = true
	}
	for _, owned := range csv.Spec.CustomResourceDefinitions.Owned {
		if !definitions[owned.Name] {
			problems = append(problems, owned.Name+": is owned, and the bundle does not have it")
		}
	}
	if g.bundle.Package == "" {
		problems = append(problems, "the package has no name")
	}
	if len(csv.Spec.WebhookDefinitions) > 0 || len(csv.Spec.APIServiceDefinitions.Owned) > 0 {
		problems = append(problems, "webhooks and API services need certificates that OLM v1 has from elsewhere")
	}
	if len(csv.Spec.CustomResourceDefinitions.Required) > 0 || len(csv.Spec.APIServiceDefinitions.Required) > 0 || len(csv.Spec.NativeAPIs) > 0 {
		problems = append(problems, "OLM v1 refuses what requires other packages")
	}
	return problems
}

// checkStoreVolume checks that Subscription.spec.config.volumes can replace the store's volume, and that no pod needs a
// PersistentVolumeClaim of the bundle.
func checkStoreVolume(g loadedBundle) (problems []string) {
	replaceable := false
	for _, deployment := range g.bundle.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, volume := range deployment.Spec.Template.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				problems = append(problems, fmt.Sprintf("%s: volume %s is a claim, which no bundle can bring along", deployment.Name, volume.Name))
			}
			replaceable = replaceable || volume.Name == "store" && volume.EmptyDir != nil
		}
		mountsStore, mountsServer := mounts(deployment, "store"), mounts(deployment, "store-server")
		if mountsStore != mountsServer {
			problems = append(problems, fmt.Sprintf("%s: mounts the store: %t, and the Secret of a store on a server: %t", deployment.Name, mountsStore, mountsServer))
		}
		affinity := deployment.Spec.Template.Spec.Affinity
		if affinity == nil || affinity.PodAffinity == nil || len(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
			problems = append(problems, deployment.Name+": may run on another node than the store's volume, which it has, too")
		}
	}
	if !replaceable {
		problems = append(problems, "no Deployment has an emptyDir called store, as docs/operate/install/olm.md says")
	}
	return problems
}

// mounts reports whether a container of a Deployment mounts a volume.
func mounts(deployment v1alpha1.StrategyDeploymentSpec, volume string) bool {
	return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	})
}

// features checks that all annotations by which OpenShift's catalog filters are set.
func features(g loadedBundle) (problems []string) {
	for _, name := range []string{"disconnected", "fips-compliant", "proxy-aware", "tls-profiles", "token-auth-aws", "token-auth-azure", "token-auth-gcp"} {
		if value := g.bundle.CSV.Annotations["features.operators.openshift.io/"+name]; value != "true" && value != "false" {
			problems = append(problems, fmt.Sprintf("annotation features.operators.openshift.io/%s is %q", name, value))
		}
	}
	return problems
}
