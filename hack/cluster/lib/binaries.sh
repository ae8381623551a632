# Builds the programs from their Go modules, once.
# shellcheck shell=bash

# NODE_PROGRAMS are links to one program, kubernetes: most of their packages are the same, and linking takes long. kubectl is a program of
# its own, since it is started often.
NODE_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
PROGRAMS=(etcd coredns registry pause kubectl "${NODE_PROGRAMS[@]}")

# BUILD_LOG has a line for each package that is compiled, so that others can follow the progress.
BUILD_LOG=$CACHE/cluster/build.log

# build_programs [NAME…] builds the named programs, or all, unless they are already built.
build_programs() {
  local wanted=("$@") missing=() name
  [ $# -gt 0 ] || wanted=("${PROGRAMS[@]}")
  for name in "${wanted[@]}"; do is_built "$name" || missing+=("$name"); done
  if [ ${#missing[@]} = 0 ]; then return; fi
  command -v go >/dev/null || fail "Go is needed to build ${missing[*]}: https://go.dev/dl"
  echo "      building ${missing[*]}; minutes on 2 cores, once (progress: $BUILD_LOG)"
  mkdir -p "$BIN"; : >"$BUILD_LOG"
  local pinned=() versioned=()
  for name in "${missing[@]}"; do
    if is_pinned_here "$name"; then pinned+=("$(package_of "$name")"); else versioned+=("$(package_of "$name")"); fi
  done
  remove_unfinished_builds
  [ ${#pinned[@]} = 0 ] || compile "$HERE/programs" "${pinned[@]}"
  if [ ${#versioned[@]} != 0 ]; then
    local module; module=$(kubernetes_module) || exit 1
    compile "$module" "${versioned[@]}"
  fi
  for name in "${missing[@]}"; do install_program "$name"; done
  remove_unfinished_builds
}

# is_built succeeds if a program exists and was built from the current pin.
is_built() { [ -x "$BIN/$1" ] && [ "$(cat "$BIN/.$(file_of "$1").pin" 2>/dev/null)" = "$(pin_of "$1")" ]; }

# pin_of prints the identity of a program's source. Kubernetes in another version than the pinned one has no sums here.
pin_of() {
  local pin; pin=$(cat "$HERE"/programs/go.* "$HERE"/programs/*/main.go | sha256sum | cut -c1-16)
  if is_pinned_here "$1"; then echo "$pin"; else echo "$KUBERNETES-$pin"; fi
}

# is_pinned_here succeeds if the module in programs has the wanted version of a program.
is_pinned_here() {
  case $1 in
    etcd | coredns | registry | pause) true ;;
    *) grep -qx "require k8s.io/kubernetes v$KUBERNETES" "$HERE/programs/go.mod" ;;
  esac
}

# package_of prints the package that a program is compiled from, and file_of the name of the compiled file.
package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kubectl) echo k8s.io/kubernetes/cmd/kubectl ;;
    *) echo "./$(file_of "$1")" ;;
  esac
}
file_of() { case " ${NODE_PROGRAMS[*]} " in *" $1 "*) echo kubernetes ;; *) echo "$1" ;; esac; }

# compile MODULE PACKAGE… builds all packages at once, so that the last ones are compiled while the first ones are linked. They go to a
# temporary directory, so that an interrupted build never counts as finished. The flags are those of the Makefile, so that all share
# Go's build cache; COMPILER_FLAGS of the demo are added.
compile() {
  local module=$1; shift
  local flags; flags="-s -w $(version_flags)"
  (
    exec 9<&-
    cd "$module" && mkdir -p "$BIN/.new.$$" &&
      CGO_ENABLED=0 GOGC=$(compiler_heap) GOFLAGS="-trimpath -buildvcs=false ${COMPILER_FLAGS:-}" go build -v -ldflags "$flags" -o "$BIN/.new.$$/" "$@" >>"$BUILD_LOG" 2>&1
  ) || { tail -n 20 "$BUILD_LOG" >&2; fail "compiling $* failed; the reason is above, everything else in $BUILD_LOG"; }
}

# compiler_heap prints how far the compiler's heap may grow before a garbage collection, in percent: with 400 instead of 100, compiling
# takes a fifth less time and half more memory.
compiler_heap() {
  if [ "$(awk '/^MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)" -ge 7 ]; then echo 400; else echo 100; fi
}

# install_program moves a program to its place. The compiler names a file after the last part of its package: etcd is "server".
install_program() {
  local file compiled name; file=$(file_of "$1") compiled=$file
  if [ "$file" = etcd ]; then compiled=server; fi
  if [ ! -e "$BIN/.new.$$/$compiled" ]; then return; fi   # another link to the same file
  mv "$BIN/.new.$$/$compiled" "$BIN/$file"
  if [ "$file" = kubernetes ]; then
    for name in "${NODE_PROGRAMS[@]}"; do ln -sf kubernetes "$BIN/$name"; done
  fi
  pin_of "$1" >"$BIN/.$file.pin"
}

# remove_unfinished_builds also removes what an interrupted build left a day ago. A younger directory may belong to a build that runs.
remove_unfinished_builds() {
  rm -rf "$BIN/.new.$$"
  find "$BIN" -maxdepth 1 -name '.new.*' -mtime +1 -exec rm -rf {} +
}

# kubernetes_module prints the directory of a module from which the commands of a version that programs/go.mod does not pin can be
# built, and writes it if it is missing. `go install k8s.io/kubernetes/cmd/…@version` is not possible, since that module replaces its
# staging modules by paths. This module replaces each by its published version, which is the same code: v1.36.4 of Kubernetes is v0.36.4
# of the staging modules. It takes the versions of everything else from Kubernetes, since older versions do not compile with newer ones.
kubernetes_module() {
  local directory=$CACHE/cluster/src/kubernetes-$KUBERNETES original
  rm -rf "$directory/kubernetes"; mkdir -p "$directory"
  cp -r "$HERE/programs/kubernetes" "$directory/"
  if [ -e "$directory/complete" ] && [ "$directory/complete" -nt "$HERE/programs/kubernetes/main.go" ]; then echo "$directory"; return; fi
  rm -f "$directory"/{complete,go.sum}
  original=$(cd "$directory" && go mod download -json "k8s.io/kubernetes@v$KUBERNETES" 2>/dev/null | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
  [ -n "$original" ] || fail "the Go module proxy has no k8s.io/kubernetes v$KUBERNETES; known to be there: 1.34.10 1.35.8 1.36.4 1.37.2"
  {
    echo "module kubernetes-programs"
    grep '^go ' "$original"
    echo "tool k8s.io/kubernetes/cmd/kubectl"
    echo "require k8s.io/kubernetes v$KUBERNETES"
    echo "replace ("
    sed -n 's#^\s*\(k8s.io/[a-z-]*\) => ./staging/src/.*#\t\1 => \1 v0.'"${KUBERNETES#1.}"'#p' "$original"
    echo ")"
  } >"$directory/go.mod"
  ( cd "$directory" && go mod tidy >tidy.log 2>&1 ) || { cat "$directory/tidy.log" >&2; return 1; }
  touch "$directory/complete"
  echo "$directory"
}

# version_flags sets the version that the programs report, as in release builds; clients select features by it.
version_flags() {
  local minor=${KUBERNETES#1.} package
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' $package "$KUBERNETES" $package $package "${minor%%.*}"
  done
}
