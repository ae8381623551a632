#!/usr/bin/env bash
# Put Prometheus' promtool into bin/promtool: the installed one, or the one of Debian's package, which is unpacked without being
# installed. If neither is available, print that and succeed: the tests that need it are then skipped.
set -euo pipefail
target=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/bin/promtool
mkdir -p "$(dirname "$target")"

if installed=$(command -v promtool); then
  ln -sf "$installed" "$target"
  exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# download downloads the package. The package index of a fresh machine is empty or old.
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
