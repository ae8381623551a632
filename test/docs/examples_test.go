package docs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/test/apiserver"
)

// example is a code block in YAML.
type example struct {
	page    string
	line    int // of its first line, from 1
	section string
	text    string // without the indentation of a list that it is in
}

var (
	// yamlBlock matches a heading, or a block in YAML with the comment in the line before that says why it is not checked.
	yamlBlock = regexp.MustCompile("(?ms)^#+ ([^\n]+)$|(?:^ *<!-- not checked: ([^\n]*\\S) -->\n)?^( *)```ya?ml\n(.*?)^ *```$")
	separator = regexp.MustCompile(`(?m)^---\n`)
	// cutPEM matches a certificate or key that a page shortens with an ellipsis.
	cutPEM = regexp.MustCompile(`(?m)^( *)-----BEGIN (CERTIFICATE|PUBLIC KEY)-----\n[^-]*…\n(?: *-----END [A-Z ]+-----\n)?`)
	// topLevel matches a field that is not indented.
	topLevel = regexp.MustCompile(`(?m)^([A-Za-z]+):`)
)

// kustomization has the fields of kustomization.yaml that pages use.
var kustomization = []string{"components", "namespace", "patches", "replacements", "resources"}

// Each example in YAML is accepted by what reads it. Objects are created in a dry run by an API server with the operator's CRDs, which refuses
// unknown fields. A spec alone is one of a Scanner. A configuration is loaded as the manager does, values are rendered with the chart, and
// kustomizations are built. A line before an example that is something else says what it is:
//
//	<!-- not checked: reason -->
func TestExamples(t *testing.T) {
	assets, helm := os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("HELM")
	if assets == "" || helm == "" {
		t.Skip(`needs an API server, kubectl and Helm: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)" and HELM=$PWD/bin/helm, or "make test"`)
	}
	checker := exampleChecker{helm: helm, kubectl: filepath.Join(assets, "kubectl"), pems: pems(t)}
	for _, path := range fieldsOf(reflect.TypeFor[config.Config](), "") {
		field, _, _ := strings.Cut(path, ".")
		checker.configuration = append(checker.configuration, strings.TrimSuffix(field, "[]"))
	}
	checker.values = fieldNames(t, read(t, "charts/scanner-operator/values.yaml"))
	server, err := apiserver.Start(root, assets, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	checker.api = server
	for _, namespace := range []string{"shop", "blog", "scanner-operator-system"} {
		if err := server.CreateNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for _, page := range guides(t) {
		for _, e := range examples(t, page) {
			checked++
			if err := checker.check(t, e); err != nil {
				t.Errorf("%s:%d: %v\n%s", e.page, e.line, err, e.text)
			}
		}
		if err := checker.buildKustomizations(t); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
	if checked < 50 {
		t.Errorf("only %d examples were found: is this test looking for the right thing?", checked)
	}
}

// examples returns the examples of a page that are checked.
func examples(t *testing.T, page string) (found []example) {
	t.Helper()
	text, section := read(t, page), ""
	for _, at := range yamlBlock.FindAllStringSubmatchIndex(text, -1) {
		group := func(number int) string {
			if at[2*number] < 0 {
				return ""
			}
			return text[at[2*number]:at[2*number+1]]
		}
		switch line := strings.Count(text[:max(at[8], 0)], "\n") + 1; {
		case group(1) != "":
			section = group(1)
		case group(2) != "":
			t.Logf("%s:%d is not checked: %s", page, line, group(2))
		default:
			block := group(4)
			if indent := group(3); indent != "" {
				block = strings.ReplaceAll(strings.TrimPrefix(block, indent), "\n"+indent, "\n")
			}
			found = append(found, example{page: page, line: line, section: section, text: block})
		}
	}
	return found
}

// exampleChecker has what reads examples.
type exampleChecker struct {
	api           client.Client
	helm, kubectl string
	// pems are a certificate and a public key, for those that pages shorten.
	pems map[string]string
	// configuration and values are the top-level fields of the operator's configuration, and of the chart's values.
	configuration, values []string
	// built are the kustomizations of a page by section, which belong together.
	built map[string]map[string]any
}

func (c *exampleChecker) check(t *testing.T, e example) error {
	t.Helper()
	text := cutPEM.ReplaceAllStringFunc(e.text, func(cut string) string {
		match := cutPEM.FindStringSubmatch(cut)
		return match[1] + strings.ReplaceAll(strings.TrimSpace(c.pems[match[2]]), "\n", "\n"+match[1]) + "\n"
	})
	text = strings.ReplaceAll(text, ", …}", "}") // JSON that a page shortens
	first, _, _ := strings.Cut(text, "\n")
	fields := topLevel.FindAllStringSubmatch(text, -1)
	only := func(known []string) bool {
		return len(fields) > 0 && !slices.ContainsFunc(fields, func(field []string) bool { return !slices.Contains(known, field[1]) })
	}
	switch {
	case e.page == "docs/operate/install/kustomize.md" && strings.HasPrefix(first, "# "):
		return nil // TestKustomizePageRenders in test/policy builds them
	case strings.HasPrefix(first, "# values"):
		return c.render(t, text)
	case only(kustomization):
		return c.addKustomization(e.section, text)
	case only(c.configuration):
		return load(t, text)
	case only(c.values):
		return c.render(t, text)
	case only([]string{"spec"}):
		return c.create(t, "apiVersion: scanner-operator.io/v1alpha1\nkind: Scanner\nmetadata: {name: default, namespace: shop}\n"+text)
	}
	for _, document := range separator.Split(text, -1) {
		if err := c.create(t, document); err != nil {
			return err
		}
	}
	return nil
}

// create creates an object in a dry run. A Scanner without an engine gets one: an example of other fields may leave it out.
func (c *exampleChecker) create(t *testing.T, text string) error {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
		return err
	}
	if object.GetKind() == "" {
		return errors.New("this is neither an object, nor a configuration, nor values of the chart; a comment must say what it is")
	}
	if data, isData, _ := unstructured.NestedString(object.Object, "data", "config.yaml"); isData {
		if err := load(t, data); err != nil {
			return err
		}
	}
	if strings.Contains(object.GetKind(), "Scanner") {
		if _, has, _ := unstructured.NestedMap(object.Object, "spec", "backend"); !has {
			if err := unstructured.SetNestedField(object.Object, "Grype", "spec", "backend", "type"); err != nil {
				return err
			}
		}
	}
	if err := c.api.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("%s: %w", object.GetKind(), err)
	}
	return nil
}

// load reads a configuration as the manager does.
func load(t *testing.T, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	_, err := config.Load(file)
	return err
}

// render renders the chart with values, and loads the configuration that it writes.
func (c *exampleChecker) render(t *testing.T, values string) error {
	t.Helper()
	rendered, err := output(t, values, c.helm, "template", "scanner-operator", filepath.Join(root, "charts/scanner-operator"),
		"--namespace", "scanner-operator-system", "--kube-version", "1.37.0", "--values", "-")
	if err != nil {
		return err
	}
	for _, document := range separator.Split(rendered, -1) {
		var object corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			continue // an object whose fields have other types
		}
		if data, isConfiguration := object.Data["config.yaml"]; isConfiguration && object.Kind == "ConfigMap" {
			return load(t, data)
		}
	}
	return errors.New("the chart renders no configuration")
}

// addKustomization adds an example to those of its section: one may patch what the component of another one adds.
func (c *exampleChecker) addKustomization(section, text string) error {
	var fields map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil {
		return err
	}
	if c.built == nil {
		c.built = map[string]map[string]any{}
	}
	if c.built[section] == nil {
		c.built[section] = map[string]any{}
	}
	for field, value := range fields {
		if more, isList := value.([]any); isList {
			before, _ := c.built[section][field].([]any)
			value = slices.Concat(before, more)
		}
		c.built[section][field] = value
	}
	return nil
}

// buildKustomizations builds the kustomizations of a page with the manifests of this repository.
func (c *exampleChecker) buildKustomizations(t *testing.T) error {
	t.Helper()
	var errs []error
	for section, fields := range c.built {
		dir := t.TempDir()
		here, err := filepath.Abs(filepath.Join(root, "config"))
		if err != nil {
			return err
		}
		manifests, err := filepath.Rel(dir, here)
		if err != nil {
			return err
		}
		if fields["resources"] == nil {
			fields["resources"] = []any{"../default"}
		}
		text, err := yaml.Marshal(fields)
		if err != nil {
			return err
		}
		near := strings.NewReplacer("https://github.com/scanner-operator/scanner-operator/config/", manifests+"/", "https://…/config/", manifests+"/",
			"?ref=v0.1.0", "", "- ../", "- "+manifests+"/", "path: policy_replacements.yaml", "path: "+manifests+"/default/policy_replacements.yaml")
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(near.Replace(string(text))), 0o600); err != nil {
			return err
		}
		if _, err := output(t, "", c.kubectl, "kustomize", "--load-restrictor=LoadRestrictionsNone", dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", section, err, text))
		}
	}
	c.built = nil
	return errors.Join(errs...)
}

// fieldNames returns the top-level fields of a file in YAML.
func fieldNames(t *testing.T, text string) (names []string) {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		names = append(names, name)
	}
	return names
}

// output returns the standard output of a program.
func output(t *testing.T, input, program string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, stderr.String())
	}
	return stdout.String(), nil
}

// pems returns a certificate and its public key in PEM format, by the type in their first lines.
func pems(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for name, der := range map[string][]byte{"CERTIFICATE": certificate, "PUBLIC KEY": public} {
		blocks[name] = string(pem.EncodeToMemory(&pem.Block{Type: name, Bytes: der}))
	}
	return blocks
}
