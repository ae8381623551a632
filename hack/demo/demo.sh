#!/usr/bin/env bash
# The demo, from nothing: builds what is missing, starts a local cluster, and runs the scenarios on it. Use "make demo".
#
# Every step writes its output to bin/demo-logs; here appear the steps, the time that is left, and the demo itself. A step that fails
# prints the end of its log. What is built is kept, so an interrupted demo continues where it was.
#
# Settings, from the environment:
#   CI=1                         plain lines instead of a status line; remove everything at the end
#   BACKEND                      grype (default) or clair
#   STORE                        sqlite (default) or postgres
#   KUBECONFIG                   use this cluster, and the registry REGISTRY, instead of the local ones
#   VERSION, COMMIT, PLATFORMS   of the operator's images
#   SCANNER_CACHE                where programs and the times of the last run are kept
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=hack/demo/steps.sh
source hack/demo/steps.sh

CI=${CI:-} BACKEND=${BACKEND:-grype} STORE=${STORE:-sqlite} KUBECONFIG=${KUBECONFIG:-}
REGISTRY=${REGISTRY:-198.51.100.10:5000/scanner-operator}
CACHE=${SCANNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/scanner-operator}
CLUSTER=hack/cluster/cluster.sh
export BACKEND STORE REGISTRY CGO_ENABLED=0

LOGS=$PWD/bin/demo-logs RECORD=$CACHE/demo PLAIN=$CI
[ -t 1 ] || PLAIN=1

# Free space that a demo needs, in GiB: modules, Go's build cache, programs and images.
SPACE_FROM_NOTHING=12
SPACE_AGAIN=3

main() {
  local steps=(check download cluster operator fixtures push demo)
  if [ -n "$KUBECONFIG" ]; then steps=(check download operator fixtures push demo); fi
  command -v go >/dev/null || refuse "Go is missing." "Install Go $(wanted_go) or newer: https://go.dev/dl"
  mkdir -p "$RECORD"
  choose_compiler_flags
  exec 8<"$RECORD"
  flock --nonblock 8 || refuse "Another demo is being built or run on this machine." "Wait until it has finished, or stop it."
  begin "${steps[@]}"
  trap finish EXIT
  echo "Workloads with known vulnerabilities on a real Kubernetes, an operator that finds them, and a stand-in for Slack."
  echo "Logs: $LOGS"
  echo
  step check     "Check this machine"                              check_machine
  step download  "Download Go modules and Debian packages"         download
  if [ -z "$KUBECONFIG" ]; then
    step cluster "Build Kubernetes and the registry"               build_cluster
  fi
  step operator  "$(operator_title)"                               build_operator
  step fixtures  "Build the images of the demo"                    build_fixtures
  step push      "Push the images"                                 push_images
  show_step demo "Run the demo"                                    run_demo
  echo "Everything took $(duration $((SECONDS - BEGAN)))."
}

operator_title() { if [ -n "$KUBECONFIG" ]; then echo "Build the operator's images"; else echo "Build the operator's images, start the cluster"; fi; }

# choose_compiler_flags leaves out debug data and inlining where nothing is compiled yet: that takes much less time. All programs are
# stripped anyway, and a demo does not need the fastest ones. Packages with other flags are compiled again, so a machine on which the project
# was compiled before keeps the Makefile's flags, and the choice is kept.
choose_compiler_flags() {
  if [ ! -e "$RECORD/compiler-flags" ]; then
    local packages; packages=$(find "$(go env GOCACHE)/00" -type f 2>/dev/null | wc -l) || true   # without a cache, find fails
    if [ "$packages" -lt 10 ]; then echo "'-gcflags=all=-dwarf=false -l'"; fi >"$RECORD/compiler-flags"
  fi
  COMPILER_FLAGS=$(cat "$RECORD/compiler-flags")
  export COMPILER_FLAGS GOFLAGS="-trimpath -buildvcs=false $COMPILER_FLAGS"
}

# finish removes a cluster that an unattended demo has started, also after a failure.
finish() {
  local status=$?
  trap '' INT TERM
  if [ -n "$CI" ] && [ -e "$LOGS/cluster-started" ]; then rm "$LOGS/cluster-started"; "$CLUSTER" down || status=1; fi
  exit $status
}

# check_machine stops before minutes of work that would be in vain.
check_machine() {
  # Go downloads a newer release of itself when go.mod requires one, unless that is switched off.
  go version || refuse "Go $(wanted_go) is needed." "Install it: https://go.dev/dl"
  case $BACKEND in grype | clair) ;; *) refuse "BACKEND=$BACKEND is not known." "Give grype or clair." ;; esac
  case $STORE in sqlite | postgres) ;; *) refuse "STORE=$STORE is not known." "Give sqlite or postgres." ;; esac
  if [ -z "$KUBECONFIG" ]; then check_for_cluster; fi
  check_space
}

check_for_cluster() {
  [ "$(uname -s)" = Linux ] || refuse "The local cluster needs Linux." "Set KUBECONFIG and REGISTRY to use another cluster."
  [ "$(id -u)" = 0 ] || refuse "The local cluster needs root, for namespaces and containerd." \
    "Try: sudo --preserve-env make demo      Or set KUBECONFIG and REGISTRY to use another cluster."
  unshare --net --mount --pid --fork true 2>/dev/null ||
    refuse "This machine does not allow new namespaces. Is it a container without privileges?" \
      "Use a virtual machine, or set KUBECONFIG and REGISTRY to use another cluster."
  local missing; missing=$(source_cluster missing_packages | sort -u | tr '\n' ' ')
  [ -z "$missing" ] || command -v apt-get >/dev/null ||
    refuse "Programs are missing, and this machine has no apt-get." "Install by hand the programs of: $missing"
}

# check_space wants the whole space on each file system, since usually all directories are on one.
check_space() {
  local need=$SPACE_FROM_NOTHING free directory
  if [ "${KIND[operator]}" = again ]; then need=$SPACE_AGAIN; fi
  for directory in "$(go env GOCACHE)" "$(go env GOMODCACHE)" "$CACHE" /var/lib "$PWD"; do
    while [ ! -d "$directory" ]; do directory=$(dirname "$directory"); done
    free=$(df --output=avail -B1G "$directory" | tail -n 1 | tr -d ' ')
    [ "$free" -ge "$need" ] || refuse "$directory has $free GiB of free space; the demo needs $need." \
      "Free some, or move the caches: GOCACHE, GOMODCACHE, SCANNER_CACHE."
  done
}

wanted_go() { sed -n 's/^go //p' go.mod; }

# source_cluster runs a function of the cluster's scripts.
source_cluster() (
  # shellcheck disable=SC2034   # for the scripts
  HERE=$PWD/hack/cluster
  # shellcheck source=/dev/null
  for part in settings progress packages binaries; do source "hack/cluster/lib/$part.sh"; done
  "$@"
)

# modules are the Go modules of everything that the demo builds.
modules() {
  [ -n "$KUBECONFIG" ] || echo hack/cluster/programs
  printf '%s\n' . worker test/images/api test/images/migrate test/images/bastion
  [ "$BACKEND" != clair ] || echo hack/tools/clair
}

# download fills the module cache. Meanwhile, the standard library is compiled, which needs no download.
download() {
  local module jobs=()
  for module in $(modules); do
    ( cd "$module" && go mod download ) & jobs+=($!)
  done
  if [ -z "$KUBECONFIG" ]; then "$CLUSTER" packages & jobs+=($!); fi
  build_ui & jobs+=($!)
  compile std & jobs+=($!)
  wait_all "${jobs[@]}"
}

# build_ui builds the web UI, which the manager embeds. Without Node.js, the manager serves a page that says how to get it.
build_ui() {
  if has_node; then make --no-print-directory ui; else echo "The web UI is not built: it needs Node.js 20.19 or newer with npm."; fi
}

has_node() {
  command -v npm >/dev/null && node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'
}

# compile gives the compiler a larger heap if there is memory: it then takes a fifth less time.
compile() { GOGC=$(source_cluster compiler_heap) go build -v "$@"; }

# build_cluster also compiles SQLite: one package that takes half a minute on one core, and that most of the operator waits for.
build_cluster() {
  "$CLUSTER" build & local cluster=$!
  compile modernc.org/sqlite & wait_all $cluster $!
}

# build_operator starts the cluster meanwhile, which mostly waits.
build_operator() {
  local jobs=()
  if [ -z "$KUBECONFIG" ]; then start_cluster & jobs+=($!); fi
  compile_operator & jobs+=($!)
  wait_all "${jobs[@]}"
}

start_cluster() {
  "$CLUSTER" status >/dev/null 2>&1 || touch "$LOGS/cluster-started"
  "$CLUSTER" up
}

compile_operator() {
  compile -o bin/image-builder ./hack/images
  GOGC=$(source_cluster compiler_heap) bin/image-builder build -without-ui -version="${VERSION:-dev}" -commit="${COMMIT:-}" -platforms="${PLATFORMS:-linux/$(go env GOARCH)}"
}

build_fixtures() {
  compile -o bin/demo ./hack/demo
  bin/demo build
  if [ "$BACKEND" = clair ]; then bin/demo build-clair; fi
  if [ "$STORE" = postgres ]; then bin/demo build-postgresql; fi
}

push_images() { beside_cluster_if_local bin/image-builder push -version="${VERSION:-dev}" -registry="$REGISTRY"; }

# The local registry can be reached only from the node's network.
beside_cluster_if_local() {
  if [[ $REGISTRY == 198.51.100.10:* ]]; then hack/cluster/run.sh "$@"; else "$@"; fi
}

run_demo() { CI=$CI hack/cluster/run.sh bin/demo; }

main
