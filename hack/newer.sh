#!/usr/bin/env bash
# Build a later version of the operator, with its images, for the tests that upgrade to it and back: this version with one more migration, which
# only adds to the schema.
#
#   newer.sh VERSION PLATFORMS   write bin/newer, with the result of "make images" in its bin
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1 platforms=$2 root=$PWD
mkdir -p bin/newer
migration=00099_added.sql
for dialect in sqlite postgres mysql; do
  echo "\"$root/pkg/store/migrations/$dialect/$migration\": \"$root/hack/newer/$migration\""
done | paste -sd, | sed 's/.*/{"Replace": {&}}/' >bin/newer/overlay.json
GOFLAGS="-overlay=$root/bin/newer/overlay.json" bin/image-builder build -out=bin/newer/bin -version="$version" -platforms="$platforms"
