#!/usr/bin/env bash
# Run a command that needs a cluster, and leave the machine as it was: a local cluster that was not up before is removed
# afterwards, whether the command succeeds, fails or is interrupted. With KUBECONFIG set, that cluster is used and nothing is
# started or stopped.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
cluster=$(dirname "${BASH_SOURCE[0]}")/cluster.sh
if [ -z "${KUBECONFIG:-}" ] && ! "$cluster" status >/dev/null 2>&1; then
  trap '"$cluster" down' EXIT
  "$cluster" up
fi
"$@"
