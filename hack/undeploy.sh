#!/usr/bin/env bash
# Remove the operator from the cluster that kubectl speaks to: its Scanners first, so that the manager takes back what it
# left elsewhere (Jobs, annotations and finalizers of pods, manifests in Clair), and then the operator itself. If the manager does not, or has
# gone already, the rescue of docs/uninstall.md does: without the operator, a pod with one of its finalizers could never go.
# It may be run any number of times. "make undeploy" runs it, and builds bin/manager before.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."
namespace=scanner-operator-system
manager=scanner-operator-manager

# scanner_kind prints a line while there can be Scanners.
scanner_kind() { kubectl get crd scanners.scanner-operator.io --ignore-not-found --output name; }

# deployment prints a line while the manager may run.
deployment() { kubectl --namespace "$namespace" get deployment "$manager" --ignore-not-found --output name; }

# workers prints namespace and name of the operator's Jobs. Anybody may put its labels on a Job of their own: a name and all
# labels of a worker are wanted together.
workers() {
  kubectl get jobs --all-namespaces \
    --selector 'app.kubernetes.io/managed-by=scanner-operator,app.kubernetes.io/name=scanner-operator,app.kubernetes.io/component in (catalog,match)' \
    --output go-template='{{range .items}}{{.metadata.namespace}} {{.metadata.name}}{{"\n"}}{{end}}' |
    { grep -E ' scan-(catalog|match)-[a-z0-9]+$' || true; }
}

# left prints a line for each object that still has something of the operator's.
left() {
  # shellcheck disable=SC2016 # the template has variables of its own
  kubectl get pods --all-namespaces --output go-template='{{range .items}}pod {{.metadata.namespace}} {{.metadata.name}}{{range .metadata.finalizers}} finalizer={{.}}{{end}}{{range $key, $value := .metadata.annotations}} annotation={{$key}}{{end}}{{"\n"}}{{end}}' |
    { grep -E ' (finalizer=[^ ]*\.scanner-operator\.io/release|annotation=[^ ]*\.scanner-operator\.io/image-hashes)( |$)' || true; } |
    cut --delimiter=' ' --fields=1-3
  if [ -n "$(scanner_kind)" ]; then
    kubectl get scanners.scanner-operator.io --all-namespaces \
      --output go-template='{{range .items}}scanner {{.metadata.namespace}} {{.metadata.name}}{{"\n"}}{{end}}'
  fi
  workers | sed 's/^/job /'
}

# rescue does the manager's work with the rights of whoever runs this: neither the manager's image nor its ServiceAccount
# need be there. A manager that runs would put its finalizers back.
rescue() {
  if [ -n "$(deployment)" ]; then
    kubectl --namespace "$namespace" scale deployment "$manager" --replicas=0
    kubectl --namespace "$namespace" wait pod --for=delete --timeout=120s --selector app.kubernetes.io/name=scanner-operator,app.kubernetes.io/component=manager ||
      echo "undeploy: the manager's pod does not end (is its node lost?); going on"
  fi
  [ -x bin/manager ] || { echo "undeploy: bin/manager is missing; run 'make undeploy', or 'make build' before"; return 1; }
  # What it could not do is said below.
  bin/manager cleanup || true
  workers | while read -r where job; do
    kubectl --namespace "$where" delete job "$job" --ignore-not-found </dev/null
  done
}

if [ -n "$(scanner_kind)" ]; then
  kubectl delete scanners.scanner-operator.io --all --all-namespaces --wait=false
fi
rest=$(left)
for _ in $(seq 60); do
  if [ -z "$rest" ] || [ -z "$(deployment)" ]; then break; fi
  echo "waiting for the manager to take back $(wc -l <<<"$rest") Scanners, Jobs, annotations and finalizers"
  sleep 2
  rest=$(left)
done
if [ -n "$rest" ]; then
  echo "the manager did not take back everything (does it run?): doing it without the manager"
  rescue
  rest=$(left)
fi
if [ -n "$rest" ]; then
  echo "undeploy: these still have something of the operator's, so the operator was not removed; the lines above may say why:"
  echo "$rest"
  echo "undeploy: see 'When the operator went first' in docs/uninstall.md, and run this again"
  exit 1
fi
kubectl kustomize config/default | kubectl delete --ignore-not-found --filename -
# What a component of config may have added beside it.
kubectl delete clusterrolebinding,clusterrole scanner-operator-notifier-clair-webhooks --ignore-not-found
