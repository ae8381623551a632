#!/usr/bin/env bash
# The node's first process: prepares its namespaces from inside, then becomes a program that only waits and reaps. start_node
# starts it in new PID, mount and network namespaces; mounts here are invisible to the machine.
set -euo pipefail
state=$1 address=$2 services=$3; shift 3

# This process' ID on the machine, readable only while the machine's /proc is still mounted.
read -r pid _ </proc/self/stat

# Mounts are shared among the node's own programs, so that the kubelet's volumes reach containers.
mount --make-rshared /
mount -t proc proc /proc
for directory in "$@"; do
  mkdir -p "$state/private$directory"
  mount --bind "$state/private$directory" "$directory"
done

# A bridge has the node's address, since not every kernel has the dummy device. All other addresses are immediately unreachable:
# a program that tries the internet fails in a millisecond instead of hanging.
ip link set lo up
ip link add node0 type bridge
ip address add "$address/24" dev node0
ip link set node0 up
ip route add unreachable default
# The Services' addresses need a route to any target: the kernel looks up a route before kube-proxy's rules replace them.
ip route add "$services" dev node0
ip -6 route add unreachable default 2>/dev/null || true
echo 1 >/proc/sys/net/ipv4/ip_forward

echo "$pid" >"$state/node.pid"
exec "$state/first-process"
