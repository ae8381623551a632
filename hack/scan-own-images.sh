#!/usr/bin/env bash
# Scan the operator's own images with the operator in the cluster of kubectl, print the findings, and fail if a high or critical
# vulnerability has a fix. "make scan-own-images" runs this after "make deploy".
#
# Each image runs once, in a pod that prints its version and ends. The operator also scans the images of ended pods.
set -euo pipefail
shopt -s inherit_errexit
command -v jq >/dev/null || { echo "scan-own-images: jq is missing (apt-get install jq)"; exit 1; }

system=scanner-operator-system namespace=scanner-operator-own-images
container() { kubectl --namespace $system get deployment "$1" --output "jsonpath={.spec.template.spec.containers[0]$2}"; }
manager=$(container scanner-operator-manager .image)
notifier=$(container scanner-operator-notifier .image)
worker=$(container scanner-operator-manager '.env[?(@.name=="RELATED_IMAGE_WORKER")].value')
[ -n "$worker" ] || { echo "scan-own-images: the manager's Deployment names no image of the worker"; exit 1; }

kubectl create namespace $namespace --dry-run=client --output yaml | kubectl apply --filename -
trap 'kubectl delete namespace $namespace --wait=false' EXIT
for image in "manager $manager" "notifier $notifier" "worker $worker"; do
  kubectl apply --filename - <<EOF
{apiVersion: v1, kind: Pod, metadata: {namespace: $namespace, name: ${image% *}},
 spec: {restartPolicy: Never, automountServiceAccountToken: false, containers: [{name: version, image: "${image#* }", args: [--version],
   resources: {limits: {memory: 128Mi, cpu: 500m}}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}],
   securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}}}
EOF
done
kubectl apply --filename - <<EOF
{apiVersion: scanner-operator.io/v1alpha1, kind: Scanner, metadata: {namespace: $namespace, name: default}, spec: {}}
EOF

# Wait for one ImageScan per distinct image, each with findings.
deadline=$((SECONDS + 1200))
until [ "$(kubectl --namespace $namespace get imagescans --output 'jsonpath={range .items[?(@.status.findings)]}{.metadata.name}{"\n"}{end}' | wc -l)" = 3 ]; do
  [ $SECONDS -lt $deadline ] || { kubectl --namespace $namespace get pods,scanners,imagescans; echo "scan-own-images: not all images were scanned within 20 minutes"; exit 1; }
  sleep 5
done

findings() { kubectl --namespace $system exec deploy/scanner-operator-manager -- /scanner-operator findings --namespace $namespace "$@"; }
findings
fixable=$(findings -o json | jq -r '[.[].findings[] | select((.severity == "Critical" or .severity == "High") and (.fixVersions // [] | length > 0)) |
  "\(.id) in \(.package.name) \(.package.version), fixed in \(.fixVersions | join(", "))"] | unique[]')
[ -z "$fixable" ] || { printf 'scan-own-images: update what has a fix:\n%s\n' "$fixable"; exit 1; }
echo "scan-own-images: no vulnerability of high or critical severity has a fix"
