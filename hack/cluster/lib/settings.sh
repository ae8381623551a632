# Paths, addresses and names. This file has no side effects.
# shellcheck shell=bash disable=SC2034   # used by the files that are sourced beside this one

# kubernetes_version maps a minor version (1.37) to a patch that the Go module proxy has. A full version is used unchanged; the
# proxy reports an error if it does not have it.
kubernetes_version() {
  case $1 in
    1.37) echo 1.37.2 ;;
    1.36) echo 1.36.4 ;;
    1.35) echo 1.35.8 ;;
    1.34) echo 1.34.10 ;;
    1.[0-9]*.[0-9]*) echo "$1" ;;
    *) echo "KUBERNETES_VERSION=$1 is not known: give 1.34, 1.35, 1.36, 1.37, or a full version such as 1.37.2" >&2; return 1 ;;
  esac
}
KUBERNETES=$(kubernetes_version "${KUBERNETES_VERSION:-1.37}") || exit 2

CLUSTER_NAME=${CLUSTER_NAME:-scanner-cluster}
CACHE=${SCANNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/scanner-operator}

# Everything that a running cluster writes. It is not below the cache or a temporary directory: the path must be short, since
# sockets are created in it (at most 107 characters), and on a real file system, since containerd's overlays are in it.
STATE=/var/lib/$CLUSTER_NAME

# TEST-NET-2 (RFC 5737): an address that no other machine has, so it always means this node.
NODE_ADDRESS=198.51.100.10
REGISTRY_ADDRESS=$NODE_ADDRESS:5000

# The same images behind TLS and a password. Pulling requires the cluster's authority and a pull secret. Neither the name nor
# the password protects anything.
PRIVATE_REGISTRY_ADDRESS=$NODE_ADDRESS:5443
PRIVATE_REGISTRY_USER=robot
PRIVATE_REGISTRY_PASSWORD=only-for-tests
# shellcheck disable=SC2016   # the dollar signs belong to bcrypt
PRIVATE_REGISTRY_HASH='$2a$05$uJKJXjKhMwd2UuSvNLaeDuVtQ2dWGgHGF5MWOxkKBh0iGZkZEoi1y'
APISERVER=https://$NODE_ADDRESS:6443
POD_RANGE=10.244.0.0/24
SERVICE_RANGE=10.96.0.0/16
FIRST_SERVICE=10.96.0.1     # the API server's own Service: always the first address of the range

BIN=$CACHE/cluster/$KUBERNETES   # the built programs, one directory per Kubernetes version

PROGRAMS_STARTED=(registry private-registry etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy coredns)
