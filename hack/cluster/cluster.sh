#!/usr/bin/env bash
# A real one-node Kubernetes and an image registry on one Debian machine, without Docker and without internet at run time.
#
#   cluster.sh up              start the cluster (builds missing programs first); does nothing if it is already up
#   cluster.sh down            stop it and remove everything that it created; also works on a partly started one
#   cluster.sh exec CMD ARG…   run a command beside the cluster: KUBECONFIG set, kubectl first on PATH, registry reachable
#   cluster.sh status          print which programs run; exits with 0 only if the cluster responds
#   cluster.sh kill NAME       kill a program of the cluster with SIGKILL (kube-apiserver containerd registry …), for tests
#   cluster.sh start NAME      start it again
#   cluster.sh build [NAME…]   build all programs, or only the named ones (etcd kube-apiserver kubectl …)
#   cluster.sh packages        install the Debian packages that "up" needs, if any is missing
#   cluster.sh assets [NAME…]  build what controller tests need, or the named programs, and print their directory (for KUBEBUILDER_ASSETS)
#
# Settings, from the environment:
#   KUBERNETES_VERSION   1.37 (default), 1.36, 1.35, 1.34, or a full version such as 1.37.2
#   SCANNER_CACHE        where built programs are kept   (default: ~/.cache/scanner-operator)
#   CLUSTER_NAME         a second cluster beside the first (default: scanner-cluster; state in /var/lib/NAME)
#
# README.md beside this file explains the design.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in settings progress packages binaries certificates node controlplane runtime teardown; do
  # shellcheck source=/dev/null
  source "$HERE/lib/$part.sh"
done

# up brings the cluster from any state to running. The order follows the dependencies. Each step waits until the programs that
# it started respond.
up() {
  need_root up
  take_lock
  if is_up; then refuse_other_version; say "the cluster is up already (Kubernetes $(cat "$STATE/version"))"; return; fi
  if [ -e "$STATE" ]; then say "cleaning up after an earlier run that did not finish"; remove_cluster; fi
  local began=$SECONDS
  step 1/9 "Debian packages";                          install_packages
  step 2/9 "programs for Kubernetes $KUBERNETES";      build_programs
  step 3/9 "node: its own processes, mounts, network"; start_node
  step 4/9 "certificates";                             make_certificates
  step 5/9 "image registries and etcd";                start_registry; start_private_registry; start_etcd
  step 6/9 "API server";                               start_apiserver
  step 7/9 "controller manager and scheduler";         start_controllers
  step 8/9 "containerd, kubelet, kube-proxy, CoreDNS"; start_runtime
  step 9/9 "waiting for the node to be Ready";         wait_until_ready
  touch "$STATE/ready"
  say "up after $((SECONDS - began)) s: Kubernetes $KUBERNETES, registry $REGISTRY_ADDRESS"
  say "look around:  make cluster-exec CMD='kubectl get pods -A'      stop it:  make cluster-down"
}

# down removes the cluster in any state.
down() {
  need_root down
  take_lock
  if [ ! -e "$STATE" ]; then say "no cluster is here: nothing to do"; return; fi
  remove_cluster
  say "the cluster is gone: processes, mounts, networks and $STATE removed (built programs stay in $CACHE)"
}

# run_beside replaces this process by the given command inside the node's network. The command does not enter the node's mount
# and PID namespaces, so it sees the machine's files.
run_beside() {
  [ $# -gt 0 ] || fail "exec needs a command, for example: cluster.sh exec kubectl get pods -A"
  need_root exec
  is_up || fail "no cluster is running; start it with: make cluster-up"
  BIN=$(cat "$STATE/bin")
  # The node's network has no route to other networks, so a proxy or a module download would only hang. Both are disabled.
  unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
  export GOPROXY=off KUBECONFIG=$STATE/admin.kubeconfig PATH=$BIN:$PATH
  export SCANNER_REGISTRY=$REGISTRY_ADDRESS SCANNER_REGISTRY_LOG=$STATE/log/registry-access.log SCANNER_DNS_HOSTS=$STATE/dns-hosts
  export SCANNER_AUDIT_LOG=$STATE/log/audit.log SCANNER_CLUSTER=$STATE
  export SCANNER_PRIVATE_REGISTRY=$PRIVATE_REGISTRY_ADDRESS SCANNER_PRIVATE_REGISTRY_CA=$STATE/pki/ca.crt
  export SCANNER_PRIVATE_REGISTRY_USER=$PRIVATE_REGISTRY_USER SCANNER_PRIVATE_REGISTRY_PASSWORD=$PRIVATE_REGISTRY_PASSWORD
  exec nsenter --net="/proc/$(cat "$STATE/node.pid")/ns/net" -- "$@"
}

# status prints one line per program and the node as Kubernetes sees it.
status() {
  need_root status
  if [ ! -e "$STATE" ]; then say "no cluster is here; start it with: make cluster-up"; return 1; fi
  local name
  for name in "${PROGRAMS_STARTED[@]}"; do
    if is_running "$name"; then printf '  %-24s running\n' "$name"; else printf '  %-24s not running (log: %s)\n' "$name" "$STATE/log/$name.log"; fi
  done
  is_up || { say "the cluster does not answer; start it anew with: make cluster-down cluster-up"; return 1; }
  "$0" exec kubectl get nodes -o wide
  say "registry $REGISTRY_ADDRESS, its access log in $STATE/log/registry-access.log"
}

case ${1:-} in
  up | down | status) "$1" ;;
  exec) shift; run_beside "$@" ;;
  kill) need_root kill; kill_program "${2:-}" ;;
  start) need_root start; start_again "${2:-}" ;;
  build) shift; build_programs "$@" ;;
  packages) need_root packages; mkdir -p "$CACHE"; install_packages ;;
  assets)
    shift; [ $# -gt 0 ] || set -- etcd kube-apiserver kubectl
    build_programs "$@" >&2; echo "$BIN" ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
