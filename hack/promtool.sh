#!/usr/bin/env bash
# Brings Prometheus' promtool to bin/promtool: the one that is installed, or that of Debian's package, of which nothing is
# installed. Where neither can be had it says so and is content: the tests that need it are skipped then.
set -euo pipefail
target=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/bin/promtool
mkdir -p "$(dirname "$target")"

if installed=$(command -v promtool); then
  ln -sf "$installed" "$target"
  exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# download brings the package. Lists of packages are empty on a fresh machine, or old.
download() (
  cd "$dir"
  apt-get -qq download prometheus || { apt-get -qq -o DPkg::Lock::Timeout=300 update && apt-get -qq download prometheus; }
)
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null || ! download >"$dir/log" 2>&1; then
  echo "promtool: neither installed nor to be had from Debian's packages: the alerts are not tested"
  [ ! -e "$dir/log" ] || tail -n 3 "$dir/log"
  exit 0
fi
dpkg-deb --fsys-tarfile "$dir"/prometheus_*.deb | tar -x -C "$dir" ./usr/bin/promtool
mv "$dir/usr/bin/promtool" "$target"
