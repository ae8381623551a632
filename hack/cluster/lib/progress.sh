# Prints progress, and stops with a reason.
# shellcheck shell=bash

say()  { echo "cluster: $*"; }
fail() { echo "cluster: error: $*" >&2; exit 1; }

# step NUMBER/OF WHAT announces the next part of a long task.
step() { echo "[$1] $2"; }

need_root() {
  [ "$(id -u)" = 0 ] || fail "namespaces and containerd need root; try: sudo --preserve-env make cluster-$1"
}

# take_lock makes a second up or down wait for the first. The lock is on an existing directory, so no lock file remains. It ends
# with this process even if it is killed, since background processes do not inherit it.
take_lock() {
  mkdir -p "$CACHE"
  exec 9<"$CACHE"
  flock --nonblock 9 || { say "waiting for another cluster.sh to finish"; flock 9; }
}

# wait_for SECONDS NAME CMD… tries a command until it succeeds. After a timeout, it prints the log of the program NAME.
wait_for() {
  local deadline=$((SECONDS + $1)) name=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "cluster: $name is not ready; the end of $STATE/log/$name.log:" >&2
      tail -n 25 "$STATE/log/$name.log" >&2 || true
      fail "gave up on: $*   (make cluster-down removes what was started)"
    fi
    sleep 0.2
  done
}
