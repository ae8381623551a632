package commands_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/test/docs/commands"
)

func TestRead(t *testing.T) {
	const page = "# Title\n\n```sh\nkubectl get pods\n# no heading\nkubectl get nodes\n```\n\n## Next\n\n```yaml\nkind: Pod\n```\n\n" +
		"```console\n$ kubectl get pods     # all\nNAME\nweb\n$ kubectl get nodes\n```\n\n" +
		"1. do\n\n   <!-- not run: there is no OpenShift here -->\n   ```bash\n   oc whoami <<END\n     x\n   END\n   ```\n"
	got, err := commands.Read("page.md", page)
	if err != nil {
		t.Fatal(err)
	}
	want := []commands.Block{
		{Page: "page.md", Line: 4, Section: "Title", Commands: "kubectl get pods\n# no heading\nkubectl get nodes\n"},
		{Page: "page.md", Line: 16, Section: "Next", Commands: "kubectl get pods     # all\nkubectl get nodes\n"},
		{Page: "page.md", Line: 26, Section: "Next", Commands: "oc whoami <<END\n  x\nEND\n", NotRun: "there is no OpenShift here"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

func TestReadRefusesWhatItCouldMisread(t *testing.T) {
	for name, c := range map[string]struct{ page, want string }{
		"no reason":               {"<!-- not run: -->\n```sh\nls\n```\n", "page.md:1: the comment does not say why"},
		"no block":                {"<!-- not run: why -->\n\n```sh\nls\n```\n", "page.md:1: the line after this comment"},
		"a block in no shell":     {"<!-- not run: why -->\n```yaml\na: b\n```\n", "page.md:1: the line after this comment"},
		"a comment at the end":    {"<!-- not run: why -->", "page.md:1: the line after this comment"},
		"output without commands": {"```console\nNAME\n```\n", "page.md:2: this console has no line that begins with"},
		"a block without an end":  {"text\n```sh\nls\n", "page.md:2: the code block has no end"},
	} {
		if _, err := commands.Read("page.md", c.page); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error with %q, got %v", name, c.want, err)
		}
	}
}

func TestReplace(t *testing.T) {
	got := commands.Replace("apply https://a/v1/q.yaml and https://a/v1/q.yaml", "https://a/v1/", "/tmp/", "q.yaml", "p.yaml")
	if got != "apply /tmp/p.yaml and /tmp/p.yaml" {
		t.Errorf("got %q", got)
	}
}
