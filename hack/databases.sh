#!/usr/bin/env bash
# Install the servers on which the tests of the store run, from Debian's packages: PostgreSQL, MariaDB and PgBouncer. The tests start their
# own, so no service is started, and PostgreSQL's package creates no cluster. Nothing happens if they are installed.
set -euo pipefail

missing=()
for package in postgresql mariadb-server pgbouncer; do
  [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "databases: ${missing[*]} must be installed by root: apt-get install ${missing[*]}" >&2
  exit 1
fi

mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
# This program decides whether a package may start its service (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "${missing[@]}" >/dev/null; }
install || { apt-get -qq -o DPkg::Lock::Timeout=300 update && install; }
