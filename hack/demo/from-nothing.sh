#!/usr/bin/env bash
# Times the demo from nothing: a clone of the committed state, with empty caches for modules, packages and programs of its own.
#
#   hack/demo/from-nothing.sh          run it, print the time of each step, and remove everything
#   KEEP=1 hack/demo/from-nothing.sh   leave the clone and the caches, for a look at the logs
#
# Run it while nothing else runs. It needs root and 12 GiB in TMPDIR, and no local cluster may be up. Debian packages that are installed stay
# installed: their download and installation is measured on a new machine only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if hack/cluster/cluster.sh status >/dev/null 2>&1; then echo "from-nothing: a local cluster is up; stop it: make cluster-down" >&2; exit 1; fi
place=$(mktemp -d "${TMPDIR:-/tmp}/demo-from-nothing.XXXXXX")

clean() {
  local status=$?
  make --no-print-directory -C "$place/clone" cluster-down || status=1
  if [ -n "${KEEP:-}" ]; then echo "from-nothing: everything is in $place"; exit $status; fi
  chmod -R u+w "$place" && rm -rf "$place"
  exit $status
}
trap clean EXIT

git clone -q --no-hardlinks . "$place/clone"
export GOCACHE=$place/build GOMODCACHE=$place/modules SCANNER_CACHE=$place/programs
unset CI KUBECONFIG GOFLAGS GOGC
echo "$(nproc) cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg), commit $(git rev-parse --short=12 HEAD)"
TIMEFORMAT='from-nothing: %R s in all; %U s + %S s of processor time, without the programs that the cluster runs'
status=0
time { make --no-print-directory -C "$place/clone" demo BACKEND="${BACKEND:-}" >"$place/output" 2>&1 || status=$?; }
grep -E '^[0-9]/[0-9] |done after|^Everything took|^The demo took' "$place/output"
if [ $status != 0 ]; then tail -n 40 "$place/output"; exit $status; fi
du -sh "$GOMODCACHE" "$GOCACHE" "$SCANNER_CACHE" | sed 's/^/from-nothing: /'
