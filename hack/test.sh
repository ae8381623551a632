#!/usr/bin/env bash
# Run all tests that need no cluster, the race detector looking on where concurrency is; it needs a C compiler. "make test"
# brings the programs that some of them need (bin/grype, bin/helm, bin/promtool) and runs it.
# All are run, whatever fails before; the exit status is 0 only when none has failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Where concurrency is.
raced=(./controllers/... ./notifier/... ./pkg/backend/clair/... ./pkg/notify/client/... ./pkg/rest/... ./pkg/server/... ./pkg/store/...)

# Under the race detector random histories are cut short (-short); of these packages they run in full without it.
in_full=(./pkg/server ./pkg/store)

# What the manager shares with the worker is tested with the versions of both: each has its own of the registry client.
shared=github.com/scanner-operator/scanner-operator/registry

# In the worker only what runs at the same time: under the race detector Grype is slow.
worker_raced='TestManyMatches|TestWorks|TestToldToStop|TestOneBad|TestServerWants|TestNewerBuild'

if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  echo "test: API server and etcd for the controller tests"
  KUBEBUILDER_ASSETS=$(hack/cluster/cluster.sh assets)
fi
export KUBEBUILDER_ASSETS

race=() with_race=0
if [ "$(env -u CGO_ENABLED go env CGO_ENABLED)" = 1 ]; then
  race=(-race) with_race=1
else
  echo "test: no C compiler here, so the race detector does not look on"
fi

names=$(go list "${raced[@]}")
mapfile -t raced <<<"$names"
others=$(go list ./... | grep -vE '/test/(e2e|install)$' | grep -vxF "$names")
mapfile -t others <<<"$others"

failed="" grype=$PWD/bin/grype
export HELM=$PWD/bin/helm
go test "${others[@]}" "${in_full[@]}" "$shared" || failed=1
CGO_ENABLED=$with_race go test "${race[@]}" -short -timeout 25m "${raced[@]}" || failed=1
(cd worker && CGO_ENABLED=$with_race go test "${race[@]}" -short -run "$worker_raced" ./match ./leases ./database) || failed=1
for module in workerapi registry worker hack/bundle; do
  (cd "$module" && GRYPE_COMMAND=$grype go test ./...) || failed=1
done
[ -z "$failed" ] || { echo "test: something failed; look for FAIL above"; exit 1; }
