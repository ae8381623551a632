#!/usr/bin/env bash
# Remove the operator from the cluster that kubectl speaks to: its Scanners first, so that the manager takes back what it did
# for them elsewhere, as in Clair, and then everything else. "manager cleanup" does that with the rights of whoever runs this,
# whether or not the manager is still there: see docs/uninstall.md.
# It may be run any number of times. "make undeploy" runs it, and builds bin/manager before.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ -x bin/manager ] || { echo "undeploy: bin/manager is missing; run 'make undeploy', or 'make build' before"; exit 1; }
bin/manager cleanup --operator-namespace=scanner-operator-system --scanners --stop-manager || {
  echo "undeploy: not everything could be taken back, so the operator was not removed; the lines above say why. Run this again"
  exit 1
}
kubectl kustomize config/default | kubectl delete --ignore-not-found --filename -
# What components of config may have added beside it.
kubectl delete clusterrolebinding,clusterrole scanner-operator-notifier-clair-webhooks scanner-operator-metrics-reader scanner-operator-cleanup --ignore-not-found
