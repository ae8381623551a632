package cluster

import (
	"os"
	"regexp"
	"testing"
)

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9-]+\.[a-z]+\S*) (v\S+)`)

// requirements returns the versions of the modules that a go.mod requires. Modules that it replaces have the replacement's version.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, found := range requirement.FindAllSubmatch(content, -1) {
		versions[string(found[1])] = string(found[2])
	}
	for _, found := range regexp.MustCompile(`(?m)^\s*(\S+) => \S+ (v\S+)`).FindAllSubmatch(content, -1) {
		versions[string(found[1])] = string(found[2])
	}
	return versions
}

// A package with another version of one dependency is compiled a second time, and with it every package that imports it: minutes of each
// demo and of each pipeline.
func TestClusterAndOperatorShareVersionsOfModules(t *testing.T) {
	operator, shared := requirements(t, "../../go.mod"), 0
	for module, version := range requirements(t, "programs/go.mod") {
		want, both := operator[module]
		if !both {
			continue
		}
		shared++
		if version != want {
			t.Errorf("%s: %s in hack/cluster/programs, %s in the operator's module; run \"go get\" with the newer one in the other directory", module, version, want)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules in common: are both files read?", shared)
	}
}

// Otherwise the default version is built from a module that is written at run time, without sums in the repository.
func TestDefaultKubernetesIsPinned(t *testing.T) {
	got, err := sourced(t, `is_pinned_here kubelet && echo "$KUBERNETES"`)
	if want := requirements(t, "programs/go.mod")["k8s.io/kubernetes"]; err != nil || "v"+got != want {
		t.Errorf("want the default of lib/settings.sh to be %s as in programs/go.mod, got %q (error %v)", want, got, err)
	}
	for _, module := range []string{"k8s.io/api", "k8s.io/apiserver", "k8s.io/kubectl"} {
		if version := requirements(t, "programs/go.mod")[module]; "v1"+version[2:] != "v"+got {
			t.Errorf("%s: want the version that belongs to Kubernetes %s, got %s", module, got, version)
		}
	}
}

func TestOtherKubernetesIsNotPinned(t *testing.T) {
	if output, err := sourced(t, `is_pinned_here kubelet || is_pinned_here kubectl || echo "not pinned"; is_pinned_here etcd && echo "etcd is"`, "KUBERNETES_VERSION=1.34"); err != nil || output != "not pinned\netcd is" {
		t.Errorf("got %q (error %v)", output, err)
	}
}

// The five programs are one file: after it was built for one of them, the others need no build.
func TestNodeProgramsAreLinksToOneFile(t *testing.T) {
	output, err := sourced(t, `
BIN=$(mktemp -d); mkdir "$BIN/.new.$$"; printf '#!/bin/sh\nbasename "$0"\n' >"$BIN/.new.$$/kubernetes"; chmod +x "$BIN/.new.$$/kubernetes"
is_built kubelet && echo "built too early"
install_program kube-apiserver
for name in "${NODE_PROGRAMS[@]}"; do is_built "$name" && "$BIN/$name"; done
is_built kubectl || echo "no kubectl"
rm -r "$BIN"`)
	want := "kube-apiserver\nkube-controller-manager\nkube-scheduler\nkubelet\nkube-proxy\nno kubectl"
	if err != nil || output != want {
		t.Errorf("want:\n%s\ngot:\n%s (error %v)", want, output, err)
	}
}
