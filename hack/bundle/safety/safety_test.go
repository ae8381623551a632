package safety

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Directories of the definitions: published has those of the last release and is updated only by a release, bases has the current ones.
const (
	published = "../../../config/crd/published"
	bases     = "../../../config/crd/bases"
)

// OLM v1 can upgrade from the last release.
func TestUpgradeFromPublishedDefinitions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(published, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("%s holds no CRD: nothing was released yet, so there is nothing to stay compatible with", published)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			now := filepath.Join(bases, filepath.Base(file))
			if _, err := os.Stat(now); err != nil {
				t.Fatalf("a published kind is gone: %v", err)
			}
			for _, problem := range problems(t, read(t, file), read(t, now)) {
				t.Errorf("an upgrade from the last release would be refused: %s", problem)
			}
		})
	}
}

type (
	crd    = apiextensionsv1.CustomResourceDefinition
	schema = apiextensionsv1.JSONSchemaProps
)

// Each rule rejects one change to the definition of Scanner.
func TestEachRuleRefuses(t *testing.T) {
	one, raw := int64(1), func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
	tests := map[string]struct {
		change func(*crd)
		want   string
	}{
		"scope":               {func(c *crd) { c.Spec.Scope = apiextensionsv1.ClusterScoped }, "scope"},
		"stored version goes": {func(c *crd) { c.Spec.Versions[0].Name = "v1" }, "storedVersionRemoval"},
		"field goes":          {func(c *crd) { delete(spec(c).Properties, "addPodAnnotation") }, "existingFieldRemoval"},
		"other type":          {at("addPodAnnotation", func(s *schema) { s.Type = "string" }), "type"},
		"new required field": {func(c *crd) {
			part := spec(c)
			part.Required = append(part.Required, "addPodAnnotation")
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = *part
		}, "required"},
		"other default":             {at("addPodAnnotation", func(s *schema) { s.Default = raw(`false`) }), "default"},
		"default goes":              {at("addPodAnnotation", func(s *schema) { s.Default = nil }), "default"},
		"default for what has none": {at("podSelector", func(s *schema) { s.Default = raw(`{}`) }), "default"},
		"choice goes":               {engine(func(s *schema) { s.Enum = s.Enum[:1] }), "enum"},
		"fewer items":               {at("notifications", func(s *schema) { s.MaxItems = &one }), "maxItems"},
		"more items needed":         {at("notifications", func(s *schema) { s.MinItems = &one }), "minItems"},
		"other rule":                {at("backend", func(s *schema) { s.XValidations[0].Rule = "false" }), "unhandled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := read(t, filepath.Join(bases, "scanner-operator.io_scanners.yaml"))
			changed := old.DeepCopy()
			test.change(changed)
			if found := strings.Join(problems(t, old, changed), "\n"); !strings.Contains(found, test.want) {
				t.Errorf("want a problem of %q, got %q", test.want, found)
			}
		})
	}
}

// Changed descriptions, new optional fields, new enum values and wider bounds are allowed.
func TestAllowedChanges(t *testing.T) {
	ninety := int64(90)
	for name, change := range map[string]func(*crd){
		"description":        at("addPodAnnotation", func(s *schema) { s.Description = "another" }),
		"new optional field": func(c *crd) { spec(c).Properties["new"] = schema{Type: "string"} },
		"new choice": engine(func(s *schema) {
			s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: []byte(`"Sometimes"`)})
		}),
		"more items": at("notifications", func(s *schema) { s.MaxItems = &ninety }),
	} {
		t.Run(name, func(t *testing.T) {
			old := read(t, filepath.Join(bases, "scanner-operator.io_scanners.yaml"))
			changed := old.DeepCopy()
			change(changed)
			if found := problems(t, old, changed); len(found) > 0 {
				t.Errorf("want no problem, got %q", found)
			}
		})
	}
}

func problems(t *testing.T, old, now *crd) []string {
	t.Helper()
	found, err := Problems(old, now)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func spec(c *crd) *schema {
	properties := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	part := properties["spec"]
	return &part
}

// engine changes spec.backend.type, the field with an enum.
func engine(change func(*schema)) func(*crd) {
	return at("backend", func(s *schema) {
		field := s.Properties["type"]
		change(&field)
		s.Properties["type"] = field
	})
}

// at changes a field of spec.
func at(name string, change func(*schema)) func(*crd) {
	return func(c *crd) {
		field := spec(c).Properties[name]
		change(&field)
		spec(c).Properties[name] = field
	}
}

func read(t *testing.T, file string) *crd {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var definition crd
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		t.Fatal(err)
	}
	// The API server sets this status for an installed definition.
	definition.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
	return &definition
}
