# Builds every program from its Go module, once.
# shellcheck shell=bash

KUBERNETES_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
OTHER_PROGRAMS=(etcd coredns registry pause)

# build_programs [NAME…] builds the named programs, or all, unless they are already built.
build_programs() {
  local wanted=("$@") missing=() name
  [ $# -gt 0 ] || wanted=("${OTHER_PROGRAMS[@]}" "${KUBERNETES_PROGRAMS[@]}")
  for name in "${wanted[@]}"; do is_built "$name" || missing+=("$name"); done
  if [ ${#missing[@]} = 0 ]; then return; fi
  command -v go >/dev/null || fail "Go is needed to build ${missing[*]}: https://go.dev/dl"
  echo "      building ${#missing[@]} programs from their Go modules; about 6 minutes in all on 2 cores, once"
  mkdir -p "$BIN"
  local done=0
  for name in "${missing[@]}"; do
    done=$((done + 1))
    echo "      ($done/${#missing[@]}) $name"
    build_program "$name" || fail "building $name failed; the reason is above"
  done
}

# is_built succeeds if a program exists and was built from the current pin.
is_built() { [ -x "$BIN/$1" ] && [ "$(cat "$BIN/.$1.pin" 2>/dev/null)" = "$(pin_of "$1")" ]; }

# pin_of prints the identity of a program's source: its module here, or the Kubernetes version.
pin_of() {
  if [ -d "$HERE/programs/$1" ]; then cat "$HERE/programs/$1"/*.* | sha256sum | cut -c1-16; else echo "$KUBERNETES"; fi
}

# build_program builds one program under a temporary name, so that an interrupted build never counts as finished. All programs
# use the same flags, so that they share Go's build cache.
build_program() {
  local name=$1 directory=$HERE/programs/$1 package=. flags="-s -w"
  case $name in
    etcd) package=go.etcd.io/etcd/server/v3 ;;
    coredns | registry | pause) ;;
    *) directory=$(kubernetes_module) || return; package=k8s.io/kubernetes/cmd/$name; flags="$flags $(version_flags)" ;;
  esac
  (
    exec 9<&-
    cd "$directory" && CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" go build -ldflags "$flags" -o "$BIN/.$name.$$" "$package"
  ) && mv "$BIN/.$name.$$" "$BIN/$name" && pin_of "$name" >"$BIN/.$name.pin"
}

# kubernetes_module prints the directory of a module from which Kubernetes' commands can be built, and writes it if it is
# missing. `go install k8s.io/kubernetes/cmd/…@version` is not possible, since that module replaces its staging modules by
# paths. This module replaces each by its published version, which is the same code: v1.37.2 of Kubernetes is v0.37.2 of the
# staging modules.
kubernetes_module() {
  local directory=$CACHE/cluster/src/kubernetes-$KUBERNETES original
  if [ -e "$directory/complete" ]; then echo "$directory"; return; fi
  rm -rf "$directory"; mkdir -p "$directory"
  original=$(cd "$directory" && go mod download -json "k8s.io/kubernetes@v$KUBERNETES" 2>/dev/null | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
  [ -n "$original" ] || fail "the Go module proxy has no k8s.io/kubernetes v$KUBERNETES; known to be there: 1.34.10 1.35.8 1.36.4 1.37.2"
  {
    echo "module kubernetes-programs"
    grep '^go ' "$original"
    echo "tool ("; printf '\tk8s.io/kubernetes/cmd/%s\n' "${KUBERNETES_PROGRAMS[@]}"; echo ")"
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
