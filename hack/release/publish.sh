#!/usr/bin/env bash
# Publish the result of "make release-dry-run": push images and chart, sign them and the checksums, attest the SBOM of each
# image, and verify everything.
#
#   publish.sh DIR REGISTRY VERSION
#
# The registry's credentials are those of "docker login". cosign signs with the identity of the workflow that runs this script
# (keyless), or with the key in COSIGN_KEY, without any service, for trials.
set -euo pipefail
[ $# = 3 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
release=$1 registry=$2 version=$3

sign=(--yes) verify=() push=()
if [ -n "${COSIGN_KEY:-}" ]; then
  sign+=(--key "$COSIGN_KEY" --tlog-upload=false --use-signing-config=false)
  verify+=(--key "${COSIGN_KEY%.key}.pub" --insecure-ignore-tlog)
  push+=(--plain-http) # a registry on this machine
else
  verify+=(--certificate-oidc-issuer https://token.actions.githubusercontent.com
    --certificate-identity "https://github.com/scanner-operator/scanner-operator/.github/workflows/release.yaml@refs/tags/v$version")
fi

bin/release-helper push -dir="$release" -registry="$registry" | tee "$release/pushed"
while read -r image; do
  bin/cosign sign "${sign[@]}" --recursive "$image"
  bin/cosign verify "${verify[@]}" "$image" >/dev/null
done <"$release/pushed"

while read -r image materials; do
  bin/cosign attest "${sign[@]}" --type spdxjson --predicate "$materials" "$image"
  bin/cosign verify-attestation "${verify[@]}" --type spdxjson "$image" >/dev/null
done < <(bin/release-helper materials -dir="$release" -registry="$registry")

bin/helm push "$release/scanner-operator-$version.tgz" "oci://$registry/charts" "${push[@]}"

rm -f "$release/SHA256SUMS.sigstore.json"
bin/cosign sign-blob "${sign[@]}" --bundle "$release/SHA256SUMS.sigstore.json" "$release/SHA256SUMS"
bin/cosign verify-blob "${verify[@]}" --bundle "$release/SHA256SUMS.sigstore.json" "$release/SHA256SUMS"
