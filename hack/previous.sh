#!/usr/bin/env bash
# Build an earlier version of the operator from this repository's history, with its images, for the tests that upgrade from it.
#
#   previous.sh COMMIT VERSION   write bin/previous: the tree of the commit, and in its bin the result of "make images" there
#
# It does nothing if that version already exists.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$1 version=$2 tree=bin/previous

if [ "$(cat "$tree/built" 2>/dev/null)" = "$commit $version" ]; then exit 0; fi
git cat-file -e "$commit^{commit}" 2>/dev/null || {
  echo "previous: commit $commit is not in this clone, so there is no earlier version to upgrade from;"
  echo "previous: fetch the whole history (git fetch --unshallow), or name another commit (make … PREVIOUS=…)"
  exit 1
}
rm -rf "$tree"
mkdir -p "$tree"
git archive "$commit" | tar --extract --directory "$tree"
cd "$tree"
go run ./hack/images build -version="$version" -platforms="linux/$(go env GOARCH)"
go build -o bin/image-builder ./hack/images
echo "$commit $version" >built
