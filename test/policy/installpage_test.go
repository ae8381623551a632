package policy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence matches a heading, or a code block of the page on kustomize whose first line names its file.
var fence = regexp.MustCompile("(?ms)^(#{2,3}) ([^\n]+)$|^```yaml\n# (\\S+\\.yaml)\n(.*?)^```$")

// The page's examples render, and the operator is in the namespace that the example names.
func TestKustomizePageRenders(t *testing.T) {
	requireAssets(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "install", "kustomize.md"))
	if err != nil {
		t.Fatal(err)
	}
	section, files := "", map[string]map[string]string{}
	for _, match := range fence.FindAllStringSubmatch(string(text), -1) {
		if match[1] != "" {
			section = match[2]
			files[section] = map[string]string{}
			continue
		}
		files[section][match[3]] = match[4]
	}
	maps.DeleteFunc(files, func(_ string, of map[string]string) bool { return len(of) == 0 })
	if len(files) < 7 {
		t.Errorf("only %d examples were found", len(files))
	}
	for section, of := range files {
		t.Run(section, func(t *testing.T) { checkExample(t, of) })
	}
}

// checkExample renders an example of the page with the current manifest and components.
func checkExample(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	released := strings.NewReplacer("image: scanner-operator\n", "image: ghcr.io/scanner-operator/scanner-operator@sha256:1\n",
		"image: scanner-notifier\n", "image: ghcr.io/scanner-operator/scanner-notifier@sha256:2\n",
		"value: scanner-grype\n", "value: ghcr.io/scanner-operator/scanner-grype@sha256:3\n")
	write(t, filepath.Join(dir, "install.yaml"), released.Replace(render(t, filepath.Join(config, "default"))))
	replacements, err := os.ReadFile(filepath.Join(config, "default", "policy_replacements.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "policy_replacements.yaml"), string(replacements))
	const project = "scanner-operator/scanner-operator/"
	near := strings.NewReplacer("https://github.com/"+project+"releases/download/v0.1.0/install.yaml", "install.yaml",
		"https://raw.githubusercontent.com/"+project+"v0.1.0/config/default/policy_replacements.yaml", "policy_replacements.yaml",
		"https://github.com/"+project+"config/", relative(t, dir, config)+"/", "?ref=v0.1.0", "")
	want := home
	for name, content := range files {
		write(t, filepath.Join(dir, name), near.Replace(content))
		if _, after, found := strings.Cut(content, "\nnamespace: "); found {
			want, _, _ = strings.Cut(after, "\n")
		}
	}
	text := render(t, dir)
	objects, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, home) != (want == home) || !strings.Contains(text, "system:serviceaccount:"+want+":"+manager) {
		t.Errorf("the operator is not in %s alone", want)
	}
	if files["image-fields.yaml"] != "" && strings.Contains(text, "ghcr.io/") {
		t.Errorf("some images are not from the mirror")
	}
	for i := range objects {
		for path, text := range texts(objects[i].Object, "") {
			if strings.HasSuffix(path, ".namespace") && text == "system" {
				t.Errorf("%s %s: %s is %q", objects[i].GetKind(), objects[i].GetName(), path, text)
			}
		}
		if objects[i].GetKind() == "Deployment" && objects[i].GetNamespace() != want {
			t.Errorf("%s is in %s", objects[i].GetName(), objects[i].GetNamespace())
		}
	}
}
