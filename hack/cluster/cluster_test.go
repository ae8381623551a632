package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sourced runs shell commands after loading the scripts' functions, with all paths below a temporary directory.
func sourced(t *testing.T, commands string, env ...string) (string, error) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`set -euo pipefail
HERE=%q
for part in settings progress packages binaries certificates node controlplane runtime teardown; do source "$HERE/lib/$part.sh"; done
STATE=%q
%s`, here, filepath.Join(t.TempDir(), "state"), commands)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Env = append(os.Environ(), append([]string{"HOME=" + t.TempDir(), "KUBERNETES_VERSION="}, env...)...)
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

func TestKubernetesVersionIsAMinorOrAPatch(t *testing.T) {
	tests := map[string]string{"": "1.37.2", "1.37": "1.37.2", "1.36": "1.36.4", "1.35": "1.35.8", "1.34": "1.34.10", "1.36.0": "1.36.0"}
	for given, want := range tests {
		got, err := sourced(t, `echo "$KUBERNETES"`, "KUBERNETES_VERSION="+given)
		if err != nil || got != want {
			t.Errorf("KUBERNETES_VERSION=%q: want %s, got %s (error %v)", given, want, got, err)
		}
	}
}

func TestUnknownKubernetesVersionNamesTheKnownOnes(t *testing.T) {
	for _, given := range []string{"1.12", "v1.36", "latest"} {
		got, err := sourced(t, `echo "$KUBERNETES"`, "KUBERNETES_VERSION="+given)
		if err == nil || !strings.Contains(got, "1.34, 1.35, 1.36, 1.37") {
			t.Errorf("KUBERNETES_VERSION=%q: want an error with the known versions, got %q (error %v)", given, got, err)
		}
	}
}

// If the policy stayed in force after the process, newly installed services could never start on the machine.
func TestPolicyAgainstStartingServicesEndsWithTheProcess(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	during, err := sourced(t, `POLICY=`+policy+`; keep_services_stopped; status=0; "$POLICY" || status=$?; echo "$status"; trap - EXIT`)
	if err != nil || during != "101" {
		t.Fatalf("during the installation: want exit status 101 (do not start), got %q (error %v)", during, err)
	}
	// The trap was removed above, as if the process had been killed, so the file still exists.
	if err := exec.CommandContext(t.Context(), policy).Run(); err != nil {
		t.Errorf("after the process has ended: want the policy to allow services, got %v", err)
	}
	if _, err := os.Stat(policy); !os.IsNotExist(err) {
		t.Errorf("after its first use without effect the policy removes itself; got %v", err)
	}
}

func TestPolicyOfTheMachineIsKept(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	const theirs = "#!/bin/sh\nexit 101\n"
	if err := os.WriteFile(policy, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := sourced(t, `POLICY=`+policy+`; keep_services_stopped; let_services_start`); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if left, err := os.ReadFile(policy); err != nil || string(left) != theirs {
		t.Errorf("the machine's own policy: want it unchanged, got %q (error %v)", left, err)
	}
}

// Removing a cluster kills the process whose ID is in a file. After a restart of the machine, that ID may belong to another process.
func TestRemovingDoesNotKillUnrelatedProcess(t *testing.T) {
	output, err := sourced(t, `
mkdir -p "$STATE"; touch "$STATE/first-process"
sleep 60 & stranger=$!
echo $stranger >"$STATE/node.pid"
cgroup_roots() { :; }
other_clusters() { :; }
remove_cluster
kill -0 $stranger && echo alive; kill $stranger
[ -e "$STATE" ] || echo removed`)
	if err != nil || output != "alive\nremoved" {
		t.Errorf("want the stranger alive and the state removed, got %q (error %v)", output, err)
	}
}

func TestRemovingRestoresTheMachine(t *testing.T) {
	output, err := sourced(t, `
theirs=$(mktemp -d); full=$(mktemp -d); touch "$full/file"
mkdir -p "$STATE"
printf '%s\n' "$theirs" "$full" >"$STATE/directories-made"
echo kernel.panic=17 >"$STATE/machine-settings"
sysctl() { echo "sysctl $*" >&3; }
exec 3>&1
cgroup_roots() { :; }
other_clusters() { :; }
remove_cluster
[ -d "$theirs" ] || echo "empty directory removed"
[ -e "$full/file" ] && echo "used directory kept"; rm -r "$full"`)
	want := "sysctl -qw kernel.panic=17\nempty directory removed\nused directory kept"
	if err != nil || output != want {
		t.Errorf("want:\n%s\ngot:\n%s (error %v)", want, output, err)
	}
}

// The directories are mount points in every cluster. Without them another cluster loses the state of its containers.
func TestRemovingKeepsDirectoriesOfOtherCluster(t *testing.T) {
	output, err := sourced(t, `
shared=$(mktemp -d); neighbour=$(mktemp -d)
mkdir -p "$STATE"
echo "$shared" >"$STATE/directories-made"; touch "$neighbour/directories-made"
echo kernel.panic=17 >"$STATE/machine-settings"; touch -d yesterday "$STATE/machine-settings"; echo kernel.panic=10 >"$neighbour/machine-settings"
sysctl() { echo "sysctl $*" >&3; }
exec 3>&1
cgroup_roots() { :; }
other_clusters() { echo "$neighbour"; }
remove_cluster
[ -d "$shared" ] && echo "directory kept"
STATE=$neighbour; other_clusters() { :; }
remove_cluster
[ -d "$shared" ] || echo "directory removed"`)
	want := "directory kept\nsysctl -qw kernel.panic=17\ndirectory removed"
	if err != nil || output != want {
		t.Errorf("want:\n%s\ngot:\n%s (error %v)", want, output, err)
	}
}

// A process that runs from another state directory belongs to another cluster.
func TestOtherClusters(t *testing.T) {
	output, err := sourced(t, `
other=$(mktemp -d); mkdir -p "$STATE"
for state in "$STATE" "$other"; do cp "$(command -v sleep)" "$state/first-process"; done
"$STATE/first-process" 60 & own=$!
named() { other_clusters | grep -E "^($STATE|$other)$" || echo none; }
named
"$other/first-process" 60 & theirs=$!
for try in 1 2 3 4 5 6 7 8 9 10; do [ "$(readlink /proc/$theirs/exe)" = "$other/first-process" ] && break; sleep 0.1; done
named; kill $own $theirs; rm -r "$other"`)
	if err != nil || !regexp.MustCompile(`^none\n/.+$`).MatchString(output) {
		t.Errorf("want none and then the other one, got %q (error %v)", output, err)
	}
}

// A killed program is started again with the same arguments, and its log goes on.
func TestProgramIsStartedAgain(t *testing.T) {
	output, err := sourced(t, `
mkdir -p "$STATE/run" "$STATE/log"
on_node() { "$@"; }
node_lives() { :; }
started() { for try in {1..50}; do [ "$(wc -l <"$STATE/log/program.log")" = "$1" ] && break; sleep 0.1; done; is_running program && echo "runs"; }
start program bash -c 'echo "$1|$2"; exec sleep 60' program 'two words' '$5"'
started 1; first=$(cat "$STATE/run/program.pid")
start_again program; started 1; [ "$(cat "$STATE/run/program.pid")" = "$first" ] && echo "not started twice"
kill_program program; is_running program || echo "killed"; kill_program program
start_again program; started 2
cat "$STATE/log/program.log"; kill_program program
kill_program unknown`)
	const want = "runs\nruns\nnot started twice\nkilled\nruns\n" + `two words|$5"` + "\n" + `two words|$5"` + "\n"
	if !strings.HasPrefix(output, want) || err == nil || !strings.Contains(output, `"unknown" is no program of a running cluster`) {
		t.Errorf("want:\n%s and an error about an unknown program, got:\n%s (error %v)", want, output, err)
	}
}

// Without the pin in the check, an outdated build would be used forever.
func TestProgramIsBuiltAgainWhenItsPinChanges(t *testing.T) {
	output, err := sourced(t, `
mkdir -p "$BIN"; printf '#!/bin/sh\n' >"$BIN/etcd"; chmod +x "$BIN/etcd"; pin_of etcd >"$BIN/.etcd.pin"
is_built etcd && echo "built"
echo other >"$BIN/.etcd.pin"; is_built etcd || echo "stale"
rm "$BIN/.etcd.pin"; is_built etcd || echo "unfinished"`)
	if err != nil || output != "built\nstale\nunfinished" {
		t.Errorf("want built, stale, unfinished; got %q (error %v)", output, err)
	}
}
