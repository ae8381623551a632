#!/usr/bin/env bash
# Run a command on a new local cluster of each Kubernetes version, one after the other, and print a table at the end.
#
#   matrix.sh COMMAND ARG…
#
# The command runs as with the local cluster: run.sh and cluster.sh reach the cluster of the current version. A failed version
# does not stop the next ones; the exit status is 0 only if all succeeded. The clusters have a name of their own, so the usual
# local cluster is not affected.
#
# Settings, from the environment:
#   VERSIONS   the versions, as KUBERNETES_VERSION takes them (default: "1.34 1.35 1.36 1.37")
#   LOGS       directory for one log per version              (default: bin/matrix)
#   CLUSTER    the program that starts and stops a cluster    (default: cluster.sh beside this file)
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 2; }

VERSIONS=${VERSIONS:-1.34 1.35 1.36 1.37}
LOGS=${LOGS:-bin/matrix}
CLUSTER=${CLUSTER:-$(dirname "${BASH_SOURCE[0]}")/cluster.sh}
export CLUSTER_NAME=${CLUSTER_NAME:-matrix}
unset KUBECONFIG

# on_version runs the command on one version. Its exit status is that of the command, or that of the cluster's failed start.
on_version() {
  export KUBERNETES_VERSION=$1
  local status=0
  "$CLUSTER" down || return
  { "$CLUSTER" up && "${@:2}"; } || status=$?
  "$CLUSTER" down || status=$?
  return $status
}

trap '"$CLUSTER" down >/dev/null' EXIT
mkdir -p "$LOGS"
table=() failed=0
for version in $VERSIONS; do
  began=$SECONDS result=passed
  echo "matrix: Kubernetes $version, log in $LOGS/$version.log"
  # A separate shell instead of a condition, so that errexit stops the function after a failure.
  set +e
  ( set -e; on_version "$version" "$@" ) >"$LOGS/$version.log" 2>&1
  status=$?
  set -e
  if [ $status != 0 ]; then result=FAILED failed=1; tail -n 25 "$LOGS/$version.log"; fi
  passed=$(grep -c '^--- PASS' "$LOGS/$version.log" || true)
  not=$(grep -c '^--- FAIL' "$LOGS/$version.log" || true)
  table+=("$(printf '| %-10s | %-6s | %6s | %6s | %5s |' "$version" "$result" "$passed" "$not" "$((SECONDS - began))")")
done
printf '\n| Kubernetes | result | passed | failed | s     |\n|------------|--------|--------|--------|-------|\n'
printf '%s\n' "${table[@]}"
exit $failed
