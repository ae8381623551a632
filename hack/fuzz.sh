#!/usr/bin/env bash
# The fuzz targets of all modules. "hack/fuzz.sh list" prints the module, the package within the module and the name of each target, one target a
# line. "hack/fuzz.sh run" fuzzes each of them, and "make fuzz" explains the settings. All are fuzzed even after a failure, and a table of what was
# done comes last; the exit status is 0 only if none has failed. Input that failed is in testdata/fuzz of the package, from where every later
# "go test" reads it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The settings of a run. A time may also be a number of executions, such as 100000x, and MAXTIME ends those that take longer. SHARD=2/4 selects the
# second of four parts.
FUZZTIME=${FUZZTIME:-1m} MAXTIME=${MAXTIME:-0} ONLY=${ONLY:-} SHARD=${SHARD:-1/1} PARALLEL=${PARALLEL:-$(nproc)}

list() {
  git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go' | sed -E 's/^(.*)\/[^/]*:func (Fuzz[A-Za-z0-9_]*)\(.*/\1 \2/' | sort | while read -r dir target; do
    module=$dir
    until [ -f "$module/go.mod" ]; do module=$(dirname "$module"); done
    echo "$module $(realpath --relative-to="$module" "$dir") $target"
  done | grep -E "$ONLY" | awk -v part="${SHARD%/*}" -v of="${SHARD#*/}" 'NR % of == part % of'
}

run() {
  local targets status=0
  targets=$(list) || { echo "fuzz: ONLY='$ONLY' SHARD='$SHARD' selects no target; hack/fuzz.sh list prints them" >&2; exit 1; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  printf 'RESULT\tPACKAGE\tTARGET\tEXECUTIONS\tTIME\tNEW\tINPUTS\n' >"$work/table"
  while read -r module package target; do
    echo "fuzz: $target in $module/$package for $FUZZTIME, at most $MAXTIME"
    # By default, Go minimizes each input that reaches new code for up to a minute, and fuzzes nothing meanwhile. An interrupt ends the fuzzing, with
    # the status 0 if no input failed; the time to compile does not count.
    if (cd "$module" && go test -exec="timeout --preserve-status --signal=INT $MAXTIME" -run='^$' -fuzz="^$target\$" -fuzztime="$FUZZTIME" \
      -fuzzminimizetime=100x -parallel="$PARALLEL" -timeout=0 "./$package") </dev/null 2>&1 | tee "$work/log"; then
      result=ok
    else
      result=FAILED status=1
    fi
    sed -nE 's/^fuzz: elapsed: ([^,]+), execs: ([0-9]+).*new interesting: ([0-9]+) \(total: ([0-9]+)\)$/\2\t\1\t\3\t\4/p' "$work/log" | tail -1 |
      { read -r measured || measured=-; printf '%s\t%s\t%s\t%s\n' "$result" "$(realpath -m --relative-to=. "$module/$package")" "$target" "$measured"; } >>"$work/table"
  done <<<"$targets"
  column -t -s "$(printf '\t')" "$work/table"
  return "$status"
}

case ${1:-} in
list | run) "$1" ;;
*) echo "usage: hack/fuzz.sh list|run" >&2; exit 2 ;;
esac
