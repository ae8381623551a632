# Removes the cluster, from any state.
# shellcheck shell=bash

# remove_cluster also works after a killed start or a restart of the machine: each part checks what exists. The state directory
# is removed last, so that an interrupted removal can be repeated.
remove_cluster() {
  end_node
  remove_cgroups
  refuse_mounts_left
  restore_machine
  rm -rf "$STATE"
}

# end_node kills the first process; the kernel then kills every other process of the node, including containers. The ID of the
# first process is released only after all of them have ended and their mounts are gone.
end_node() {
  node_lives || return 0
  local pid tries=200; pid=$(cat "$STATE/node.pid")
  kill -KILL "$pid"
  while [ -d "/proc/$pid" ] && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
  [ ! -d "/proc/$pid" ] || fail "process $pid, the node's first, does not end; is one of its programs stuck on a disk?"
}

# remove_cgroups removes the pods' control groups, deepest first. A group is busy for a moment after its last process has ended.
remove_cgroups() {
  local root tries
  for root in $(cgroup_roots); do
    for tries in 1 2 3 4 5 6 7 8 9 10; do
      [ -d "$root/$CLUSTER_NAME" ] || break
      find "$root/$CLUSTER_NAME" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.$tries
    done
  done
}

# refuse_mounts_left: the node's mounts ended with it and were never visible on the machine. If one exists nevertheless,
# removing the directory would delete the mounted files.
refuse_mounts_left() {
  local left; left=$(awk -v state="$STATE/" 'index($2, state) == 1 {print $2}' /proc/mounts)
  [ -z "$left" ] || fail "these are still mounted; unmount them first: $left"
}

# restore_machine restores settings and removes created directories, or leaves both to another running cluster. Removing a
# directory would unmount the other cluster's mounts in it and delete the state of its containers.
restore_machine() {
  local setting directory other
  if read -r other < <(other_clusters); then
    cat "$STATE/directories-made" >>"$other/directories-made" 2>/dev/null || true
    # The settings that the first cluster found are those of the machine.
    if [ -e "$STATE/machine-settings" ] && [ "$STATE/machine-settings" -ot "$other/machine-settings" ]; then
      cp "$STATE/machine-settings" "$other/machine-settings"
    fi
    return
  fi
  if [ -e "$STATE/machine-settings" ]; then
    while read -r setting; do sysctl -qw "$setting" >/dev/null 2>&1 || true; done <"$STATE/machine-settings"
  fi
  if [ -e "$STATE/directories-made" ]; then
    while read -r directory; do rmdir "$directory" 2>/dev/null || true; done <"$STATE/directories-made"
  fi
}

# other_clusters prints the state directory of each other cluster that runs on this machine.
other_clusters() {
  local program
  for program in /proc/[0-9]*/exe; do
    program=$(readlink "$program" 2>/dev/null) || continue
    case $program in
      "$STATE"/*) ;;
      */first-process) dirname "$program" ;;
    esac
  done
}
