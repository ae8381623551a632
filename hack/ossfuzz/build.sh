#!/bin/bash -eu
# Copyright 2026 Google LLC
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#
################################################################################

# Builds every fuzz target of every module into $OUT. OSS-Fuzz runs it in its image base-builder-go, beside a clone of the project.
set -o pipefail
cd "$SRC/scanner-operator"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A build replaces a file of Go's standard library. Go refuses that below the module cache, where it keeps a version that it has downloaded itself,
# because go.mod requires a newer one than the image has.
goroot=$(go env GOROOT)
if [[ $goroot == "$(go env GOMODCACHE)"/* ]]; then
  cp -r "$goroot" "$work/go"
  chmod -R u+w "$work/go"
  export GOROOT=$work/go PATH=$work/go/bin:$PATH GOTOOLCHAIN=local
fi

# The program that turns a target into one of libFuzzer reads the sources with the Go version that it was built with.
GOBIN=$work/bin go install github.com/AdamKorcz/go-118-fuzz-build@fc5dc53b9db8a38c394c53d6e439a1410cf8fc19
mv "$work/bin/go-118-fuzz-build" "$work/bin/go-118-fuzz-build_v2"
export PATH=$work/bin:$PATH

hack/fuzz.sh list | while read -r module package target; do
  path=$(cd "$module" && go list "./$package")
  name=$(realpath --relative-to=. "$module/$package" | tr / _)_$target
  # The build takes all files of tests for files of the package itself. Those of the external test package would not compile.
  mapfile -t external < <(cd "$module" && go list -f '{{range .XTestGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}' "$path" | grep .)
  for file in "${external[@]}"; do mv "$file" "$file.out"; done
  (cd "$module" && compile_native_go_fuzzer_v2 "$path" "$target" "$name" </dev/null)
  for file in "${external[@]}"; do mv "$file.out" "$file"; done
done
