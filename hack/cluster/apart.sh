#!/usr/bin/env bash
# Run a command of run.sh in a network of its own that reaches the cluster. In the node's network, pods that start or end add and remove interfaces,
# and Chromium ends all connections each time.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,3s/^# //p' "$0"; exit 2; }
if [ "$1" != --inside ]; then exec unshare --net -- "$0" --inside "$@"; fi
shift
# The parent has stayed in the node's network.
node=$PPID here=203.0.113.2 there=203.0.113.1
ip link set lo up
ip link add node type veth peer name apart netns "$node"
# An IPv6 address would be added a second later, which is such a change, too.
nsenter --net="/proc/$node/ns/net" sh -c "ip address add $there peer $here dev apart && ip link set apart addrgenmode none up"
ip address add "$here" peer "$there" dev node
ip link set node addrgenmode none up
ip route add default via "$there"
exec "$@"
