# The image registry, etcd and the control plane.
# shellcheck shell=bash

# start_registry serves images over plain HTTP on the node's address, to the kubelet and to pods. Its standard output is the
# access log, one line per request in Apache's combined format: tests count pulls in it.
start_registry() {
  cat >"$STATE/registry.yaml" <<C
version: 0.1
log: {level: warn, accesslog: {disabled: false}}
storage: {filesystem: {rootdirectory: $STATE/registry}, delete: {enabled: true}}
http: {addr: "$REGISTRY_ADDRESS"}
C
  start registry bash -c "exec '$BIN/registry' serve '$STATE/registry.yaml' >>'$STATE/log/registry-access.log'"
  wait_for 20 registry listens_on "$REGISTRY_ADDRESS"
}

# start_private_registry serves the content of the other registry, read-only.
start_private_registry() {
  local pki=$STATE/pki
  printf '%s:%s\n' "$PRIVATE_REGISTRY_USER" "$PRIVATE_REGISTRY_HASH" >"$STATE/htpasswd"
  cat >"$STATE/private-registry.yaml" <<C
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $STATE/registry}, maintenance: {readonly: {enabled: true}}}
http: {addr: "$PRIVATE_REGISTRY_ADDRESS", tls: {certificate: $pki/private-registry.crt, key: $pki/private-registry.key}}
auth: {htpasswd: {realm: private, path: $STATE/htpasswd}}
C
  start private-registry bash -c "exec '$BIN/registry' serve '$STATE/private-registry.yaml' >/dev/null"
  wait_for 20 private-registry listens_on "$PRIVATE_REGISTRY_ADDRESS"
}

# start_etcd does not wait for the disk (no fsync): a crash of the machine may lose the temporary cluster.
start_etcd() {
  start etcd "$BIN/etcd" --name=node1 --data-dir="$STATE/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=node1=http://127.0.0.1:2380
  wait_for 20 etcd listens_on 127.0.0.1:2379
}

kubectl_admin() { beside_node "$BIN/kubectl" --kubeconfig="$STATE/admin.kubeconfig" "$@"; }

# start_apiserver reaches the kubelet by address (logs, exec), since node names do not resolve here. The requests of the
# operator's ServiceAccounts are logged, one or two megabytes per minute of tests.
start_apiserver() {
  local pki=$STATE/pki
  start kube-apiserver "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address="$NODE_ADDRESS" --secure-port=6443 --service-cluster-ip-range="$SERVICE_RANGE" \
    --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" --client-ca-file="$pki/ca.crt" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged \
    --audit-policy-file="$HERE/audit-policy.yaml" --audit-log-path="$STATE/log/audit.log" --audit-log-maxsize=1000 \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/service-accounts.pub" --service-account-signing-key-file="$pki/service-accounts.key" \
    --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" --kubelet-preferred-address-types=InternalIP
  wait_for 60 kube-apiserver kubectl_admin get --raw /readyz
}

start_controllers() {
  local pki=$STATE/pki
  start kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$STATE/kube-controller-manager.kubeconfig" --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file="$pki/service-accounts.key" --root-ca-file="$pki/ca.crt" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --allocate-node-cidrs --cluster-cidr="$POD_RANGE" --node-cidr-mask-size=24 --service-cluster-ip-range="$SERVICE_RANGE"
  start kube-scheduler "$BIN/kube-scheduler" --kubeconfig="$STATE/kube-scheduler.kubeconfig" --leader-elect=false
  kubectl_admin apply -f "$HERE/coredns-role.yaml" >/dev/null
  volumes | kubectl_admin apply -f - >/dev/null
}

# volumes prints PersistentVolumes for PersistentVolumeClaims without a storage class. They are local volumes instead of
# hostPath, since only local volumes get the group of their pod. A volume is not reused after its PersistentVolumeClaim was
# deleted; there are enough for a long day of tests.
volumes() {
  local number
  for number in $(seq 20); do
    mkdir -p "$STATE/volumes/$number"
    cat <<V
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-$number}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  local: {path: "$STATE/volumes/$number"}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}
V
  done
}
