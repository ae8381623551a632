#!/usr/bin/env bash
# Remove the operator from the cluster that kubectl speaks to: its Scanners first, so that the manager takes back what it
# left elsewhere (Jobs, annotations and finalizers of pods), and then the operator itself. If the manager does not, the
# rescue of docs/uninstall.md does: without the operator, a pod with one of its finalizers could never go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
namespace=scanner-operator-system
manager=scanner-operator-manager

# left counts what the manager has not taken back yet.
left() {
  local pods scanners jobs
  pods=$(kubectl get pods --all-namespaces --output json | grep -cE 'scanner-operator\.io/(image-hashes|release)"' || true)
  scanners=$(kubectl get scanners --all-namespaces --output name | wc -l)
  jobs=$(kubectl get jobs --all-namespaces --selector app.kubernetes.io/managed-by=scanner-operator --output name | wc -l)
  echo $((pods + scanners + jobs))
}

# rescue has the manager's image do it, with the manager's rights, after the manager itself was stopped.
rescue() {
  local image
  image=$(kubectl --namespace "$namespace" get deployment "$manager" --output jsonpath='{.spec.template.spec.containers[0].image}')
  kubectl --namespace "$namespace" scale deployment "$manager" --replicas=0
  kubectl --namespace "$namespace" wait pod --for=delete --timeout=120s --selector app.kubernetes.io/component=manager
  kubectl --namespace "$namespace" run scanner-operator-cleanup --image="$image" --restart=Never --attach --rm \
    --override-type=strategic --overrides='{"spec": {
      "serviceAccountName": "scanner-operator-manager",
      "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
      "containers": [{"name": "scanner-operator-cleanup",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}' \
    -- cleanup
}

if kubectl get crd scanners.scanner-operator.io >/dev/null 2>&1; then
  kubectl delete scanners.scanner-operator.io --all --all-namespaces --wait=false
  for _ in $(seq 60); do
    count=$(left)
    [ "$count" = 0 ] && break
    echo "waiting for the manager to take back $count Scanners, Jobs, annotations and finalizers"
    sleep 2
  done
  if [ "$(left)" != 0 ]; then
    echo "the manager did not take back everything (does it run?): doing it without the manager"
    rescue
  fi
fi
kubectl kustomize config/default | kubectl delete --ignore-not-found --filename -
