#!/usr/bin/env bash
# Run all tests that need no cluster, with the race detector for packages with concurrency; it needs a C compiler. "make test"
# builds the programs that some of them need (bin/grype, bin/helm, bin/promtool) and runs this script. All tests run even after
# failures; the exit status is 0 only if none has failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Packages with concurrency.
raced=(./controllers/... ./notifier/... ./pkg/backend/clair/... ./pkg/announce/client/... ./pkg/restapi/... ./pkg/backend/grype/ingest/...)

# Under the race detector, random histories are shortened and tests with much data are left out (-short). These packages run in full without
# it.
in_full=(./pkg/backend/grype/ingest ./pkg/restapi)

# The code that the manager shares with the worker is tested with both modules' versions: each has its own version of the
# registry client.
shared=github.com/scanner-operator/scanner-operator/registry

# Of the store, the tests with goroutines. The packages above use the store concurrently as well.
store_raced='TestConcurrent|TestContract/SQLite/Concurrent'

# Of the worker, only concurrent code: Grype is slow under the race detector.
worker_raced='TestManyMatches|TestWorks|TestStop|TestOneBad|TestServerWants|TestNewerBuild'

if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  echo "test: API server and etcd for the controller tests"
  KUBEBUILDER_ASSETS=$(hack/cluster/cluster.sh assets)
fi
export KUBEBUILDER_ASSETS

race=() with_race=0
if [ "$(env -u CGO_ENABLED go env CGO_ENABLED)" = 1 ]; then
  # SQLite is C code that was translated to Go. Instrumented, it takes most of the time of these tests, and none of its memory is ours.
  # Only that package is left out: the linker may use the generic functions of a package without the detector for the whole program,
  # which then reports races that do not exist.
  race=(-race -gcflags=modernc.org/sqlite/lib=-race=false) with_race=1
else
  echo "test: no C compiler here, so the race detector does not look on"
fi

names=$(go list "${raced[@]}")
mapfile -t raced <<<"$names"
others=$(go list ./... | grep -vE '/test/(e2e|install)$' | grep -vxF "$names")
mapfile -t others <<<"$others"

# The other modules. Their tests compute, while those of the manager mostly wait: both run at the same time.
modules() {
  local failed=""
  (cd worker && CGO_ENABLED=$with_race go test "${race[@]}" -short -run "$worker_raced" ./match ./leases ./database) || failed=1
  for module in workerapi registry worker cmd/kubectl-scanner hack/bundle; do
    (cd "$module" && GRYPE_COMMAND=$grype go test ./...) || failed=1
  done
  # It reads the source of another module. Go would repeat its last result when that has changed.
  (cd pkg/store/storetest/mysqlgrammar && go test -count=1 ./...) || failed=1
  [ -z "$failed" ]
}

failed="" grype=$PWD/bin/grype
export HELM=$PWD/bin/helm
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# The shell makes a background process ignore an interruption, so it is terminated here.
trap 'trap - TERM; kill 0' INT TERM
modules >"$output" 2>&1 &
go test -timeout 25m "${others[@]}" "${in_full[@]}" "$shared" || failed=1
CGO_ENABLED=$with_race go test "${race[@]}" -short -timeout 25m "${raced[@]}" || failed=1
CGO_ENABLED=$with_race go test "${race[@]}" -short -run "$store_raced" ./pkg/store || failed=1
wait $! || failed=1
cat "$output"
[ -z "$failed" ] || { echo "test: something failed; look for FAIL above"; exit 1; }
