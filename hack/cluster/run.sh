#!/usr/bin/env bash
# Run a command against the cluster that is meant: the one that KUBECONFIG names when it is set, and else the local one,
# inside whose network the command then runs.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,3s/^# //p' "$0"; exit 2; }
if [ -n "${KUBECONFIG:-}" ]; then exec "$@"; fi
exec "$(dirname "${BASH_SOURCE[0]}")/cluster.sh" exec "$@"
