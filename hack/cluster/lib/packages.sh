# The Debian packages that the cluster runs on.
# shellcheck shell=bash

POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="written by hack/cluster"

# missing_packages prints the package of every missing program. It checks programs instead of packages, so that another
# distribution or a newer containerd is accepted.
missing_packages() {
  local pair
  for pair in containerd:containerd ctr:containerd runc:runc nft:nftables ip:iproute2 openssl:openssl nsenter:util-linux sysctl:procps tar:tar; do
    command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
  done
  cni_directory >/dev/null || echo containernetworking-plugins
}

# cni_directory prints the directory of the network plugins: Debian's or upstream's.
cni_directory() {
  local dir
  for dir in /usr/lib/cni /opt/cni/bin; do
    if [ -x "$dir/ptp" ] && [ -x "$dir/host-local" ]; then echo "$dir"; return; fi
  done
  return 1
}

install_packages() {
  local packages; packages=$(missing_packages | sort -u | tr '\n' ' ')
  if [ -z "$packages" ]; then return; fi
  command -v apt-get >/dev/null || fail "this machine has no apt-get; install by hand the programs of: $packages"
  echo "      installing: $packages"
  keep_services_stopped
  # The package index of a fresh machine is empty or old. A failed update is ignored, a failed install is not.
  apt-get -qq -o DPkg::Lock::Timeout=300 update >/dev/null 2>&1 || true
  # shellcheck disable=SC2086   # a list of words on purpose
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install $packages >"$CACHE/apt.log" 2>&1 </dev/null 9<&- ||
    { tail -n 20 "$CACHE/apt.log" >&2; fail "apt-get could not install: $packages   (whole log: $CACHE/apt.log)"; }
  let_services_start
}

# keep_services_stopped prevents Debian's maintainer scripts from starting the installed programs: trying a demo must not leave
# a running containerd service on the machine. The policy file becomes ineffective when this process ends, even if the process
# is killed before it can remove the file. An existing policy (containers have one) is not changed.
keep_services_stopped() {
  [ -e "$POLICY" ] && ! grep -q "$POLICY_MARK" "$POLICY" && return
  # shellcheck disable=SC2016   # $0 is for the script that is written
  printf '#!/bin/sh\n# %s, for the time of one installation\nkill -0 %s 2>/dev/null && exit 101\nrm -f "$0"\nexit 0\n' "$POLICY_MARK" $$ >"$POLICY"
  chmod 0755 "$POLICY"
  trap let_services_start EXIT
}

let_services_start() {
  if [ -e "$POLICY" ] && grep -q "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
}
