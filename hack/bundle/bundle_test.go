package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
)

// The bundle under version control passes every check.
func TestBundle(t *testing.T) {
	is, err := open(filepath.Join(root, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			for _, problem := range check(is) {
				t.Error(problem)
			}
		})
	}
}

const (
	csvFile   = "manifests/scanner-operator.clusterserviceversion.yaml"
	crdFile   = "manifests/scanner-operator.io_scanners.yaml"
	noteFile  = "metadata/annotations.yaml"
	aService  = "manifests/scanner-operator-api_v1_service.yaml"
	newObject = "manifests/new.yaml"
)

// Each check fails for a bundle that is broken in the way that the check covers.
func TestEachCheckDetectsItsProblem(t *testing.T) {
	tests := []struct {
		check  string
		broken string // how the bundle is broken
		change func(*testing.T, string)
		want   string // part of the check's message
	}{
		{"validators of the catalogs", "capability that there is not", edit(csvFile, "capabilities: ", "capabilities: Very "), "capabilities"},
		{"validators of the catalogs", "category that there is not", edit(csvFile, "categories: ", "categories: Safety, "), "Safety"},
		{"validators of the catalogs", "channel that nobody knows", edit(noteFile, "channels.v1: stable", "channels.v1: newest"), "newest"},
		{"validators of the catalogs", "name without version", edit(csvFile, "name: scanner-operator.v0.1.0", "name: scanner-operator"), "versioning"},
		{"validators of the catalogs", "no version of Kubernetes", drop(csvFile, "  minKubeVersion:"), "minKubeVersion"},
		{"validators of the catalogs", "mail address that is none", edit(csvFile, "email: maintainers@", "email: maintainers-"), "email"},
		{"validators of the catalogs", "no requests", edit(csvFile, "requests:", "limits:"), "resource"},
		{"validators of the catalogs", "owned definition that is not there", remove(crdFile), "owned CRD"},
		{"format of the directory", "no metadata", remove(noteFile), "annotations"},
		{"format of the directory", "another media type", edit(noteFile, "registry+v1", "plain+v0"), "plain+v0"},
		{"scorecard", "kind without resources", edit(csvFile, "      resources:", "      ressources:"), "has no resources"},
		{"scorecard", "field of an example without descriptor", edit(csvFile, "path: notifications\n", "path: notification\n"), "spec.notifications of the example"},
		{"scorecard", "no example", edit(csvFile, `"kind": "ImageScan"`, `"kind": "Scanner"`), "imagescans.scanner-operator.io: has no example"},
		{"images by digest", "tag", editImage("@sha256:", ":v"), "without a digest"},
		{"images by digest", "image of a variable is missing", dropImage("scanner-grype"), "scanner-grype"},
		{"images by digest", "image of a container is missing", dropImage("scanner-notifier"), "scanner-notifier"},
		{"images by digest", "another image in the annotation", edit(csvFile, "containerImage: ghcr.io/scanner-operator", "containerImage: ghcr.io/other"), "containerImage"},
		{"examples are the samples", "another severity", edit(csvFile, `"minSeverity": "High"`, `"minSeverity": "Low"`), "minSeverity"},
		{"icon", "cut off", edit(csvFile, "base64data: ", "base64data: AAAA"), "icon"},
		{"install mode", "one more", edit(csvFile, "supported: false\n    type: OwnNamespace", "supported: true\n    type: OwnNamespace"), "OwnNamespace"},
		{"kinds", "network policy", add("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\n"), "NetworkPolicy deny"},
		{"kinds", "admission policy", add("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: deny}\n"), "ValidatingAdmissionPolicy deny"},
		{"kinds", "claim", add("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: store}\n"), "PersistentVolumeClaim store"},
		{"kinds", "namespace", edit(aService, "metadata:\n", "metadata:\n  namespace: default\n"), "names a namespace"},
		{"kinds", "dependency", write("metadata/dependencies.yaml", "dependencies: []\n"), "dependencies"},
		{"annotations and labels", "another channel", edit(noteFile, "channels.v1: stable,candidate", "channels.v1: stable"), "channels"},
		{"definitions are those of config/crd", "edited by hand", edit(crdFile, "- Grype", "- Trivy"), "scanner-operator.io_scanners.yaml"},
		{"a descriptor for every field", "one is missing", edit(csvFile, "path: backend.clair.url", "path: backend.clair.uri"), "spec.backend.clair.url"},
		{"a descriptor for every field", "one of status is missing", edit(csvFile, "path: storeID", "path: storeId"), "status.storeID"},
		{"a descriptor for every field", "one in a list is missing", edit(csvFile, "path: notifications[0].name", "path: notifications.name"), "spec.notifications[0].name"},
		{"OLM v1", "a Deployment twice", edit(csvFile, "name: scanner-operator-notifier\n        spec:", "name: scanner-operator-manager\n        spec:"), "two Deployments"},
		{"OLM v1", "no package", drop(noteFile, "  operators.operatorframework.io.bundle.package.v1"), "package"},
		{"OLM v1", "definition that is not there", edit(csvFile, "      name: scanners.scanner-operator.io", "      name: others.scanner-operator.io"), "others.scanner-operator.io: is owned"},
		{"the store's volume can be replaced", "another name", edit(csvFile, "name: store", "name: data"), "called store"},
		{"the store's volume can be replaced", "a claim", edit(csvFile, "emptyDir: {}", "persistentVolumeClaim: {claimName: store}"), "is a claim"},
		{"the store's volume can be replaced", "no Secret of a server", edit(csvFile, "mountPath: /etc/scanner-operator/store\n                  name: store-server", "mountPath: /etc/scanner-operator/store\n                  name: tmp"), "of a store on a server: false"},
		{"the store's volume can be replaced", "pods on any node", edit(csvFile, "podAffinity:", "podAntiAffinity:"), "another node"},
		{"features that OpenShift's console has", "one is missing", drop(csvFile, "    features.operators.openshift.io/disconnected"), "disconnected"},
	}
	broken := map[string]bool{}
	for _, test := range tests {
		broken[test.check] = true
		t.Run(test.check+": "+test.broken, func(t *testing.T) {
			dir := copyOf(t)
			test.change(t, dir)
			is, err := open(dir)
			if err != nil && test.check != "format of the directory" {
				t.Fatal(err)
			}
			is.dir = dir
			if found := strings.Join(checks[test.check](is), "\n"); !strings.Contains(found, test.want) {
				t.Errorf("want it to speak of %q, it said: %q", test.want, found)
			}
		})
	}
	for name := range checks {
		if !broken[name] {
			t.Errorf("nothing shows that check %q can fail", name)
		}
	}
}

// The committed bundle and catalog equal those generated from the current manifests.
func TestCommittedBundleIsGenerated(t *testing.T) {
	t.Chdir(root)
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	o.out = filepath.Join(t.TempDir(), "bundle")
	if err := generate(o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filesBelow(t, "bundle"), filesBelow(t, o.out)); diff != "" {
		t.Errorf("make bundle (-committed +generated):\n%s", diff)
	}
	o.out, o.args = t.TempDir(), []string{"bundle=" + bundleImage(t)}
	if err := writeCatalog(o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filesBelow(t, "catalog"), filesBelow(t, o.out)); diff != "" {
		t.Errorf("make catalog (-committed +generated):\n%s", diff)
	}
}

// bundleImage returns the bundle's image in the committed catalog. Its digest is known only after it is published.
func bundleImage(t *testing.T) string {
	t.Helper()
	catalog, err := declcfg.LoadFS(t.Context(), os.DirFS("catalog"))
	if err != nil || len(catalog.Bundles) != 1 {
		t.Fatalf("catalog with one bundle: %v", err)
	}
	return catalog.Bundles[0].Image
}

// copyOf returns the path of a copy of the bundle, with its Dockerfile.
func copyOf(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "bundle"))); err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile(filepath.Join(root, "bundle.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	save(t, dir+".Dockerfile", string(recipe))
	return dir
}

func edit(file, old, with string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		text := read(t, filepath.Join(dir, file))
		if !strings.Contains(text, old) {
			t.Fatalf("%s has no %q: this test breaks nothing", file, old)
		}
		save(t, filepath.Join(dir, file), strings.ReplaceAll(text, old, with))
	}
}

// drop removes the lines with a prefix.
func drop(file, begin string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		var kept strings.Builder
		for line := range strings.Lines(read(t, filepath.Join(dir, file))) {
			if !strings.HasPrefix(line, begin) {
				kept.WriteString(line)
			}
		}
		save(t, filepath.Join(dir, file), kept.String())
	}
}

// editImage edits the list relatedImages.
func editImage(old, with string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		before, list := cutImages(t, dir)
		save(t, filepath.Join(dir, csvFile), before+strings.ReplaceAll(list, old, with))
	}
}

func dropImage(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		before, list := cutImages(t, dir)
		save(t, filepath.Join(dir, csvFile), before+strings.ReplaceAll(list, "/"+name+"@", "/other@"))
	}
}

// cutImages splits the ClusterServiceVersion where relatedImages begins.
func cutImages(t *testing.T, dir string) (before, list string) {
	t.Helper()
	text := read(t, filepath.Join(dir, csvFile))
	at := strings.Index(text, "\n  relatedImages:\n")
	if at < 0 {
		t.Fatal("no relatedImages")
	}
	return text[:at], text[at:]
}

func remove(file string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

func add(object string) func(*testing.T, string) { return write(newObject, object) }

func write(file, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		save(t, filepath.Join(dir, file), text)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func save(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files[name] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
