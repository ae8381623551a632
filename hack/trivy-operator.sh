#!/usr/bin/env bash
# Build trivy-operator from its Go module, for the comparison in the benchmarks: bin/trivy-operator, and its manifests in
# bin/trivy-operator.yaml. TRIVY_OPERATOR_SOURCE is a checkout of the version, for machines whose module proxy does not have the module.
set -euo pipefail
version=v0.32.0

bin=$PWD/bin
source=${TRIVY_OPERATOR_SOURCE:-}
if [ -z "$source" ]; then
  if ! found=$(go mod download -json "github.com/aquasecurity/trivy-operator@$version"); then
    echo "trivy-operator: the module proxy does not have $version; set TRIVY_OPERATOR_SOURCE to a checkout of it: $found" >&2
    exit 1
  fi
  source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$found")
fi
if ! grep -q "app.kubernetes.io/version: \"${version#v}\"" "$source/deploy/static/trivy-operator.yaml"; then
  echo "trivy-operator: $source is not version $version" >&2
  exit 1
fi
echo "building bin/trivy-operator $version"
cd "$source"
GOFLAGS='' GOEXPERIMENT=jsonv2 CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin/trivy-operator" ./cmd/trivy-operator
install -m 644 deploy/static/trivy-operator.yaml "$bin/trivy-operator.yaml"
