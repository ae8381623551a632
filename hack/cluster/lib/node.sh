# The node: its own PID, mount and network namespaces, held by a first process.
#
# All programs of the cluster are descendants of the first process. When it ends, the kernel kills all the others, unmounts
# their mounts and deletes their networks, so no other clean-up is needed. The programs see the machine's files, except for the
# directories below, which are empty for them.
# shellcheck shell=bash

# Directories that containerd, the kubelet and the network plugins write to.
PRIVATE_DIRECTORIES=(/run/containerd /run/netns /var/lib/cni /var/lib/kubelet /var/log/containers /var/log/pods)

# The kubelet sets these for the whole machine. They are restored when the cluster is removed.
MACHINE_SETTINGS=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

start_node() {
  mkdir -m 0700 "$STATE"
  mkdir "$STATE"/{log,run,private,kubelet,podlogs,registry,etcd}
  echo "$KUBERNETES" >"$STATE/version"
  echo "$BIN" >"$STATE/bin"
  # A copy below the state directory: the path of its executable distinguishes the node's first process from others.
  cp "$BIN/pause" "$STATE/first-process"
  remember_machine
  make_cgroups
  # setsid: the cluster outlives the terminal. --kill-child: the first process does not outlive this unshare process.
  setsid unshare --net --mount --pid --fork --kill-child -- bash "$HERE/lib/first-process.sh" \
    "$STATE" "$NODE_ADDRESS" "$SERVICE_RANGE" "${PRIVATE_DIRECTORIES[@]}" </dev/null >"$STATE/log/node.log" 2>&1 9<&- &
  disown
  wait_for 10 node node_lives
}

# remember_machine records what remove_cluster must restore: settings, and directories that did not exist.
remember_machine() {
  local setting directory
  for setting in "${MACHINE_SETTINGS[@]}"; do
    echo "$setting=$(sysctl -n "$setting" 2>/dev/null)"
  done | grep -v '=$' >"$STATE/machine-settings"
  for directory in "${PRIVATE_DIRECTORIES[@]}"; do
    [ -d "$directory" ] || { mkdir -p "$directory"; echo "$directory"; }
  done >"$STATE/directories-made"
}

# cgroup_roots prints the mount points of the control groups: one hierarchy (version 2) or one per controller (version 1).
cgroup_roots() {
  awk '$3 == "cgroup2" || $3 == "cgroup" {print $2}' /proc/mounts | grep '^/sys/fs/cgroup' || true
}

# make_cgroups creates a parent control group for the cluster's pods, so that leftovers can be found and removed.
make_cgroups() {
  local root setting
  for root in $(cgroup_roots); do
    mkdir -p "$root/$CLUSTER_NAME"
    # Version 1: a new cpuset is empty, and no process can join an empty one.
    for setting in cpuset.cpus cpuset.mems; do
      if [ -e "$root/cgroup.controllers" ] || [ ! -e "$root/$setting" ]; then continue; fi
      cat "$root/$setting" >"$root/$CLUSTER_NAME/$setting"
    done
    # Version 2: children have only the controllers that their parent enables for them.
    if [ -e "$root/cgroup.controllers" ]; then
      sed 's/\(^\| \)\([a-z]\)/\1+\2/g' "$root/cgroup.controllers" >"$root/cgroup.subtree_control" 2>/dev/null || true
      sed 's/\(^\| \)\([a-z]\)/\1+\2/g' "$root/cgroup.controllers" >"$root/$CLUSTER_NAME/cgroup.subtree_control" 2>/dev/null || true
    fi
  done
}

# node_lives succeeds if the node's first process runs. It checks the executable too, since after a restart of the machine the
# process ID may belong to another process.
node_lives() {
  [ -e "$STATE/node.pid" ] && [ "$(readlink "/proc/$(cat "$STATE/node.pid")/exe")" = "$STATE/first-process" ]
}

# on_node runs a command in the node's PID, mount and network namespaces; beside_node only in its network.
on_node()     { nsenter --target "$(cat "$STATE/node.pid")" --pid --mount --net -- "$@" 9<&-; }
beside_node() { nsenter --net="/proc/$(cat "$STATE/node.pid")/ns/net" -- "$@" 9<&-; }

# start NAME COMMAND… starts a program of the node in the background; its output is added to log/NAME.log. The program becomes a
# child of the node's first process, so it ends with the node and not with this script. The command is kept for start_again.
start() {
  local name=$1; shift
  printf '%q ' "$@" >"$STATE/run/$name.command"
  # shellcheck disable=SC2016   # expanded by the inner shell
  on_node setsid --fork bash -c 'echo $$ >"$1"; shift; exec "$@"' start "$STATE/run/$name.pid" "$@" </dev/null >>"$STATE/log/$name.log" 2>&1
}

# kill_program NAME kills a program of the node with SIGKILL, and waits until it has ended. Nothing starts it again.
kill_program() {
  require_started "$1"
  while is_running "$1"; do
    on_node kill -KILL "$(cat "$STATE/run/$1.pid")" 2>/dev/null || true # it may have ended meanwhile
    sleep 0.1
  done
}

# start_again NAME starts a program as it was started before, unless it runs.
start_again() {
  require_started "$1"
  if is_running "$1"; then return; fi
  local command=()
  eval "command=($(cat "$STATE/run/$1.command"))"
  start "$1" "${command[@]}"
}

require_started() {
  [ -e "$STATE/run/$1.command" ] || fail "\"$1\" is no program of a running cluster; there are: ${PROGRAMS_STARTED[*]}"
}

# is_running succeeds if a started program still runs.
is_running() {
  [ -e "$STATE/run/$1.pid" ] && node_lives && on_node kill -0 "$(cat "$STATE/run/$1.pid")" 2>/dev/null
}

listens_on() { beside_node bash -c "exec 3<>/dev/tcp/${1%:*}/${1#*:}"; }

# is_up succeeds if the cluster was started completely and responds.
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
