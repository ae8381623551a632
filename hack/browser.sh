#!/usr/bin/env bash
# Install what builds and tests the web UI, from Debian's packages: Node.js with npm, and Chromium for the tests. Nothing happens if they are
# installed. Arguments are the programs that are needed.
set -euo pipefail

missing=()
for program in "$@"; do
  command -v "$program" >/dev/null || missing+=("${program/#node/nodejs}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "ui: ${missing[*]} must be installed by root: apt-get install ${missing[*]}" >&2
  exit 1
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "${missing[@]}" >/dev/null; }
install || { apt-get -qq -o DPkg::Lock::Timeout=300 update && install; }
