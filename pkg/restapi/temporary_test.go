package restapi

import (
	"errors"
	"io"
	"os"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TestTemporaryVolume: the files of all requests fit into the volume that the manager's pod has for them.
func TestTemporaryVolume(t *testing.T) {
	deployment, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`- name: tmp\n\s+emptyDir:\n\s+sizeLimit: (\S+)\n`).FindSubmatch(deployment)
	if found == nil {
		t.Fatal("the manager's Deployment has no volume tmp with a size limit")
	}
	if size := resource.MustParse(string(found[1])); size.Value() != temporaryVolume {
		t.Errorf("the volume has %s, want %d bytes", size.String(), temporaryVolume)
	}
}

// TestADocumentThatFillsTheVolume: a document has a bound of its own, whatever makes it.
func TestADocumentThatFillsTheVolume(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := renderToFile(func(w io.Writer) error {
		_, err := io.CopyN(w, spaces{}, maxDocumentFile+1)
		return err
	})
	if problem := (*problem)(nil); !errors.As(err, &problem) {
		t.Errorf("got %v, want a refusal", err)
	}
	document, err := renderToFile(func(w io.Writer) error {
		_, err := io.CopyN(w, spaces{}, maxDocumentFile)
		return err
	})
	if err != nil || document.size != maxDocumentFile {
		t.Fatalf("%+v, %v, want a document of %d bytes", document, err, maxDocumentFile)
	}
	document.close()
}
