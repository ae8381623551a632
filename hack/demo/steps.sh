# Runs the steps of the demo: progress, the time that is left, logs, and what to do after a failure.
# shellcheck shell=bash

# Seconds of each step on 2 cores: from nothing, and again. The last run on this machine replaces them.
declare -A FROM_NOTHING=([check]=1 [download]=60 [cluster]=370 [operator]=90 [fixtures]=20 [push]=3 [demo]=130)
declare -A AGAIN=([check]=1 [download]=2 [cluster]=1 [operator]=15 [fixtures]=6 [push]=3 [demo]=130)

# begin STEP… announces the steps, of the tables' names, and decides for each whether it starts from nothing. PLAIN prints lines instead of a
# status line that changes. RECORD is a directory for the times and for a mark of each finished step.
begin() {
  STEPS=("$@")
  local key
  declare -gA KIND=() EXPECTED=() TOOK=()
  for key in "${STEPS[@]}"; do
    if [ -e "$RECORD/$(identity)/$key" ]; then KIND[$key]=again EXPECTED[$key]=${AGAIN[$key]}
    else KIND[$key]=nothing EXPECTED[$key]=${FROM_NOTHING[$key]}; fi
    EXPECTED[$key]=$(last_time "$key" "${EXPECTED[$key]}")
  done
  # shellcheck disable=SC2034   # BEGAN is for the caller
  NUMBER=0 RUNNING='' BEGAN=$SECONDS SPENT=0 PLANNED=0
  { mkdir -p "$LOGS" && rm -f "$LOGS"/*.log && touch "$LOGS"; } 2>/dev/null ||
    refuse "$LOGS cannot be written." "An earlier demo of another user made it, probably of root: be that user, or remove it."
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
}

# identity distinguishes what was built with other modules, another compiler or another cache.
identity() { { go env GOVERSION GOCACHE GOMODCACHE GOFLAGS; cat go.sum worker/go.sum hack/cluster/programs/go.sum; } | sha256sum | cut -c1-12; }

last_time() { local known; known=$(sed -n "s/^$1 ${KIND[$1]} //p" "$RECORD/times" 2>/dev/null); echo "${known:-$2}"; }

# step KEY TITLE FUNCTION runs a function with its output in a log.
step() {
  local key=$1 title=$2 log status=0 began=$SECONDS
  start_step "$key" "$title"
  log=$LOGS/$NUMBER-$key.log
  run_in_group "$3" >"$log" 2>&1
  while [ -z "$PLAIN" ] && kill -0 $RUNNING 2>/dev/null; do
    printf '\r\033[K%s' "$(headline "$title")$(duration $((SECONDS - began))), $(remaining "$key" $((SECONDS - began)))"
    sleep 0.5
  done
  wait $RUNNING || status=$?
  RUNNING=''
  [ $status = 0 ] || stop_after_failure "$title" "$log" $status
  finish_step "$key" $((SECONDS - began))
  if [ -n "$PLAIN" ]; then echo "     done after $(duration "${TOOK[$key]}")"; else printf '\r\033[K%s%s\n' "$(headline "$title")" "$(duration "${TOOK[$key]}")"; fi
}

# show_step does the same, with the output here.
show_step() {
  local key=$1 title=$2 status=0 began=$SECONDS
  start_step "$key" "$title"
  [ -n "$PLAIN" ] || echo "$(headline "$title")$(remaining "$key" 0)"
  run_in_group "$3"
  wait $RUNNING || status=$?
  RUNNING=''
  [ $status = 0 ] || stop_after_failure "$title" "" $status
  finish_step "$key" $((SECONDS - began))
}

# run_in_group starts a function in the background, in a process group of its own: an interruption ends all of its programs. They do not
# inherit the lock of the demo (8), since the cluster outlives it.
run_in_group() {
  set -m
  ( set -e; "$1" ) </dev/null 8<&- & RUNNING=$!
  set +m
}

start_step() {
  NUMBER=$((NUMBER + 1))
  if [ -n "$PLAIN" ]; then echo "$NUMBER/${#STEPS[@]}  $2 ($(remaining "$1" 0))"; fi
}

headline() { printf '%s/%s  %-48s ' "$NUMBER" "${#STEPS[@]}" "$1"; }

# finish_step records the time for the next run, and compares it with the expected one, so that the next estimates follow the speed of this
# machine.
finish_step() {
  local key=$1 took=$2
  TOOK[$key]=$took
  if [ "${KIND[$key]}" = nothing ]; then SPENT=$((SPENT + took)) PLANNED=$((PLANNED + EXPECTED[$key])); fi
  mkdir -p "$RECORD/$(identity)"
  touch "$RECORD/$(identity)/$key" "$RECORD/times"
  sed -i "/^$key ${KIND[$key]} /d" "$RECORD/times"
  echo "$key ${KIND[$key]} $took" >>"$RECORD/times"
}

# remaining KEY ELAPSED prints an estimate of the time until the end, which KEY has run for ELAPSED seconds.
remaining() {
  local key left=0 reached='' seconds
  for key in "${STEPS[@]}"; do
    seconds=${EXPECTED[$key]}
    # The demo itself mostly waits. It takes as long on a slow machine.
    if [ "${KIND[$key]}" = nothing ] && [ "$key" != demo ] && [ "$PLANNED" -ge 30 ]; then seconds=$((seconds * SPENT / PLANNED)); fi
    if [ -n "$reached" ]; then left=$((left + seconds)); fi
    if [ "$key" = "$1" ]; then reached=1; left=$((seconds > $2 ? seconds - $2 : 0)); fi
  done
  if [ $left -lt 60 ]; then echo "less than a minute left"; else echo "about $(((left + 30) / 60)) min left"; fi
}

duration() { if [ "$1" -ge 60 ]; then echo "$(($1 / 60)) min $(($1 % 60)) s"; else echo "$1 s"; fi; }

# refuse WHAT WAY_OUT ends a step with a reason that the user can act on.
refuse() { printf '%s\n  %s\n' "$1" "$2" >&2; exit 1; }

# stop_after_failure TITLE LOG STATUS shows the end of the log.
stop_after_failure() {
  if [ -z "$PLAIN" ]; then printf '\r\033[K'; fi
  printf '%s/%s  %s: failed\n\n' "$NUMBER" "${#STEPS[@]}" "$1" >&2
  if [ -n "$2" ]; then
    tail -n 20 "$2" | sed 's/^/     /' >&2
    if [ "$(wc -l <"$2")" -gt 20 ]; then printf '\nThe whole log: %s\n' "$2" >&2; fi
    advise "$2" >&2
  fi
  exit "$3"
}

# advise prints the way out of failures whose log does not name it.
advise() {
  if grep -qE 'dial tcp|no such host|i/o timeout|TLS handshake' "$1"; then
    printf '\nThe demo needs a Go module proxy (GOPROXY=%s) and, once, the packages of Debian. Start it again when they answer.\n' "$(go env GOPROXY)"
  fi
  if grep -q 'no space left on device' "$1"; then
    printf '\nThe disk is full. Free some space, or move the caches (GOCACHE, GOMODCACHE, SCANNER_CACHE), and start the demo again.\n'
  fi
}

# interrupted ends the programs of the running step. What they have built is kept.
interrupted() {
  trap '' INT TERM
  if [ -n "$RUNNING" ]; then kill -TERM -- "-$RUNNING" 2>/dev/null || true; wait "$RUNNING" 2>/dev/null || true; fi
  printf '\nInterrupted. What is built is kept: "make demo" goes on from there.\n' >&2
  exit "$1"
}

# wait_all PID… waits for all and fails if one has failed. The others are not interrupted, since what they build is kept.
wait_all() {
  local pid status=0
  for pid in "$@"; do wait "$pid" || status=$?; done
  return $status
}
