# The node: a process, mount and network namespace of its own, with a first process that holds them.
#
# Everything of the cluster runs as a descendant of that first process. When it ends, the kernel ends all the others,
# unmounts what they mounted and deletes their networks: nothing has to be hunted for. Programs of the cluster see the
# machine's files, except for the directories below, which they get empty.
# shellcheck shell=bash

# Where containerd, the kubelet and the network plugins write whatever they are told.
PRIVATE_DIRECTORIES=(/run/containerd /run/netns /var/lib/cni /var/lib/kubelet /var/log/containers /var/log/pods)

# The kubelet sets these for the whole machine; they are put back when the cluster goes.
MACHINE_SETTINGS=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

start_node() {
  mkdir -m 0700 "$STATE"
  mkdir "$STATE"/{log,run,private,kubelet,podlogs,registry,etcd}
  echo "$KUBERNETES" >"$STATE/version"
  echo "$BIN" >"$STATE/bin"
  # A copy under the state directory: the path of its program file is what tells the node's first process from any other.
  cp "$BIN/pause" "$STATE/first-process"
  remember_machine
  make_cgroups
  # setsid: the cluster outlives the terminal. --kill-child: it does not outlive this helper of unshare.
  setsid unshare --net --mount --pid --fork --kill-child -- bash "$HERE/lib/first-process.sh" \
    "$STATE" "$NODE_ADDRESS" "$SERVICE_RANGE" "${PRIVATE_DIRECTORIES[@]}" </dev/null >"$STATE/log/node.log" 2>&1 9<&- &
  disown
  wait_for 10 node node_lives
}

# remember_machine writes down what remove_cluster has to put back: settings, and directories that were not there.
remember_machine() {
  local setting directory
  for setting in "${MACHINE_SETTINGS[@]}"; do
    echo "$setting=$(sysctl -n "$setting" 2>/dev/null)"
  done | grep -v '=$' >"$STATE/machine-settings"
  for directory in "${PRIVATE_DIRECTORIES[@]}"; do
    [ -d "$directory" ] || { mkdir -p "$directory"; echo "$directory"; }
  done >"$STATE/directories-made"
}

# cgroup_roots prints where control groups are mounted: one hierarchy (version 2) or one for each controller (version 1).
cgroup_roots() {
  awk '$3 == "cgroup2" || $3 == "cgroup" {print $2}' /proc/mounts | grep '^/sys/fs/cgroup' || true
}

# make_cgroups gives the cluster's pods a parent of their own, so that what is left of them can be found and removed.
make_cgroups() {
  local root setting
  for root in $(cgroup_roots); do
    mkdir -p "$root/$CLUSTER_NAME"
    # Version 1: a new cpuset is empty, and nothing can be put into an empty one.
    for setting in cpuset.cpus cpuset.mems; do
      if [ -e "$root/cgroup.controllers" ] || [ ! -e "$root/$setting" ]; then continue; fi
      cat "$root/$setting" >"$root/$CLUSTER_NAME/$setting"
    done
    # Version 2: children have only the controllers that their parent passes on.
    if [ -e "$root/cgroup.controllers" ]; then
      sed 's/\(^\| \)\([a-z]\)/\1+\2/g' "$root/cgroup.controllers" >"$root/cgroup.subtree_control" 2>/dev/null || true
      sed 's/\(^\| \)\([a-z]\)/\1+\2/g' "$root/cgroup.controllers" >"$root/$CLUSTER_NAME/cgroup.subtree_control" 2>/dev/null || true
    fi
  done
}

# node_lives tells whether the node's first process runs. After a restart of the machine its number may be anybody's,
# hence the look at what runs under it.
node_lives() {
  [ -e "$STATE/node.pid" ] && [ "$(readlink "/proc/$(cat "$STATE/node.pid")/exe")" = "$STATE/first-process" ]
}

# on_node runs a command among the node's processes, mounts and network; beside_node only in its network.
on_node()     { nsenter --target "$(cat "$STATE/node.pid")" --pid --mount --net -- "$@" 9<&-; }
beside_node() { nsenter --net="/proc/$(cat "$STATE/node.pid")/ns/net" -- "$@" 9<&-; }

# start NAME COMMAND… starts a program of the node in the background; its output goes to log/NAME.log. The program becomes
# a child of the node's first process, so it ends with the node and not with this script.
start() {
  local name=$1; shift
  # shellcheck disable=SC2016   # expanded by the inner shell
  on_node setsid --fork bash -c 'echo $$ >"$1"; shift; exec "$@"' start "$STATE/run/$name.pid" "$@" </dev/null >"$STATE/log/$name.log" 2>&1
}

# is_running tells whether a program that was started still runs.
is_running() {
  [ -e "$STATE/run/$1.pid" ] && node_lives && on_node kill -0 "$(cat "$STATE/run/$1.pid")" 2>/dev/null
}

listens_on() { beside_node bash -c "exec 3<>/dev/tcp/${1%:*}/${1#*:}"; }

# is_up tells whether the cluster was started to the end and answers now.
is_up() {
  [ -e "$STATE/ready" ] && node_lives &&
    beside_node "$(cat "$STATE/bin")/kubectl" --kubeconfig "$STATE/admin.kubeconfig" --request-timeout=5s get --raw /readyz >/dev/null 2>&1
}

refuse_other_version() {
  local running; running=$(cat "$STATE/version")
  if [ -n "${KUBERNETES_VERSION:-}" ] && [ "$running" != "$KUBERNETES" ]; then
    fail "Kubernetes $running is running, but KUBERNETES_VERSION asks for $KUBERNETES: make cluster-down first"
  fi
}
