#!/usr/bin/env bash
# A kind cluster and a registry beside it, for machines with Docker. hack/cluster is for other machines.
#
#   kind.sh up            start both; the registry is in Docker's network "kind", where nodes, pods and this machine reach it
#   kind.sh run CMD ARG…  run a command with KUBECONFIG and REGISTRY set to them
#   kind.sh down          remove both
#
# Setting, from the environment: KIND (the program; default bin/kind).
set -euo pipefail
KIND=${KIND:-bin/kind}
NAME=scanner-operator
KUBECONFIG_FILE=bin/kind.kubeconfig

# registry_address is the address of the registry in Docker's network. It is private (RFC 1918), so clients use plain HTTP.
registry_address() { docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}:5000' "$NAME-registry"; }

up() {
  "$KIND" create cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE" --wait 120s
  docker run --detach --network kind --name "$NAME-registry" \
    registry:3@sha256:1be55279f18a2fe1a74edf2664cac61c1bea305b7b4642dab412e7affdcb3e33 >/dev/null
  local address node
  address=$(registry_address)
  for node in $("$KIND" get nodes --name "$NAME"); do
    docker exec "$node" mkdir -p "/etc/containerd/certs.d/$address"
    docker exec --interactive "$node" tee "/etc/containerd/certs.d/$address/hosts.toml" >/dev/null <<<"[host.\"http://$address\"]"
  done
}

case ${1:-} in
  up) up ;;
  run) shift; KUBECONFIG=$PWD/$KUBECONFIG_FILE REGISTRY=$(registry_address)/scanner-operator exec "$@" ;;
  down) docker rm --force "$NAME-registry"; "$KIND" delete cluster --name "$NAME" --kubeconfig "$KUBECONFIG_FILE" ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
