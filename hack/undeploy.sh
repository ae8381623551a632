#!/usr/bin/env bash
# Remove the operator from the cluster that kubectl speaks to: its Scanners first, so that the manager takes back what it
# left elsewhere (Jobs, annotations of pods), and then the operator itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# left counts what the manager has not taken back yet.
left() {
  local annotations jobs
  annotations=$(kubectl get pods --all-namespaces --output json | grep -c 'scanner-operator.io/image-hashes' || true)
  jobs=$(kubectl get jobs --all-namespaces --selector app.kubernetes.io/managed-by=scanner-operator --output name | wc -l)
  echo $((annotations + jobs))
}

if kubectl get crd scanners.scanner-operator.io >/dev/null 2>&1; then
  kubectl delete scanners.scanner-operator.io --all --all-namespaces --timeout=120s
  for _ in $(seq 30); do
    count=$(left)
    [ "$count" = 0 ] && break
    echo "waiting for the manager to take back $count Jobs and annotations"
    sleep 2
  done
  [ "$(left)" = 0 ] || echo "the manager did not take back everything (does it run?): Jobs and annotations are left behind"
fi
kubectl kustomize config/default | kubectl delete --ignore-not-found --filename -
