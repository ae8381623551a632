#!/usr/bin/env bash
# Remove the operator from the cluster of kubectl. The Scanners are removed first, so that the manager can undo its external
# changes for them, as in Clair. "manager cleanup" does this with the permissions of the user who runs the script, whether or
# not the manager still exists: see docs/operate/uninstall.md. The script may run any number of times. "make undeploy" builds
# bin/manager and runs it.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ -x bin/manager ] || { echo "undeploy: bin/manager is missing; run 'make undeploy', or 'make build' before"; exit 1; }
bin/manager cleanup --operator-namespace=scanner-operator-system --scanners --stop-manager || {
  echo "undeploy: not everything could be taken back, so the operator was not removed; the lines above say why. Run this again"
  exit 1
}
kubectl kustomize config/default | kubectl delete --ignore-not-found --filename -
# Objects that components of config may have added.
kubectl delete clusterrolebinding,clusterrole scanner-operator-notifier-clair-webhooks scanner-operator-metrics-reader scanner-operator-cleanup \
  scanner-operator-quickstart --ignore-not-found
