#!/usr/bin/env bash
# The fuzz targets of all modules. "hack/fuzz.sh list" prints the module, the package within the module and the name of each target, one target a
# line. "hack/fuzz.sh run" fuzzes each of them, and "make fuzz" explains the settings. All are fuzzed even after a failure; the exit status is 0
# only if none has failed. Input that failed is in testdata/fuzz of the package, from where every later "go test" reads it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The settings of a run. A time may also be a number of executions, such as 100000x. SHARD=2/4 selects the second of four parts.
FUZZTIME=${FUZZTIME:-1m} ONLY=${ONLY:-} SHARD=${SHARD:-1/1} PARALLEL=${PARALLEL:-$(nproc)}

list() {
  git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go' | sed -E 's/^(.*)\/[^/]*:func (Fuzz[A-Za-z0-9_]*)\(.*/\1 \2/' | sort | while read -r dir target; do
    module=$dir
    until [ -f "$module/go.mod" ]; do module=$(dirname "$module"); done
    echo "$module $(realpath --relative-to="$module" "$dir") $target"
  done | grep -E "$ONLY" | awk -v part="${SHARD%/*}" -v of="${SHARD#*/}" 'NR % of == part % of'
}

run() {
  local targets failed=()
  targets=$(list) || { echo "fuzz: ONLY='$ONLY' SHARD='$SHARD' selects no target; hack/fuzz.sh list prints them" >&2; exit 1; }
  while read -r module package target; do
    echo "fuzz: $target in $module/$package for $FUZZTIME"
    # By default, Go minimizes each input that reaches new code for up to a minute, and fuzzes nothing meanwhile.
    (cd "$module" && go test -run='^$' -fuzz="^$target\$" -fuzztime="$FUZZTIME" -fuzzminimizetime=100x -parallel="$PARALLEL" -timeout=0 "./$package") </dev/null ||
      failed+=("$module/$package: $target")
  done <<<"$targets"
  [ ${#failed[@]} -eq 0 ] || { printf 'fuzz: failed: %s\n' "${failed[@]}"; exit 1; }
}

case ${1:-} in
list | run) "$1" ;;
*) echo "usage: hack/fuzz.sh list|run" >&2; exit 2 ;;
esac
