# The programs that run pods: containerd, the kubelet, kube-proxy and the cluster's DNS.
# shellcheck shell=bash

PAUSE_IMAGE=local/pause:1
SOCKET=$STATE/containerd/containerd.sock

start_runtime() {
  write_containerd_config
  write_pod_network
  start containerd containerd --config "$STATE/containerd.toml"
  wait_for 20 containerd on_node ctr --address "$SOCKET" version
  import_pause_image
  write_kubelet_config
  start kubelet "$BIN/kubelet" --kubeconfig="$STATE/kubelet.kubeconfig" --config="$STATE/kubelet.yaml" \
    --hostname-override=node1 --node-ip="$NODE_ADDRESS" --root-dir="$STATE/kubelet" --cert-dir="$STATE/kubelet/pki"
  # The connection tracking limit belongs to the whole machine and cannot be set from here: 0 leaves it unchanged.
  start kube-proxy "$BIN/kube-proxy" --kubeconfig="$STATE/kube-proxy.kubeconfig" --hostname-override=node1 \
    --proxy-mode=nftables --cluster-cidr="$POD_RANGE" --conntrack-max-per-core=0
  start_dns
}

# write_containerd_config maps every registry except the private one to the local one, over plain HTTP. An image named
# docker.io/library/x is library/x in the local registry. Other images cannot be pulled.
write_containerd_config() {
  mkdir -p "$STATE/containerd" "$STATE/certs.d/_default" "$STATE/certs.d/$REGISTRY_ADDRESS" "$STATE/certs.d/$PRIVATE_REGISTRY_ADDRESS"
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE (on machines inside containers), runc fails with "can't get final child's
  # PID from pipe: EOF" when containerd requests a lower score than its own.
  cat >"$STATE/containerd.toml" <<C
version = 2
root = "$STATE/containerd/root"
state = "$STATE/containerd/state"
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_directory)"
    conf_dir = "$STATE/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$STATE/certs.d"
C
  tee "$STATE/certs.d/_default/hosts.toml" >"$STATE/certs.d/$REGISTRY_ADDRESS/hosts.toml" <<C
server = "http://$REGISTRY_ADDRESS"
[host."http://$REGISTRY_ADDRESS"]
  capabilities = ["pull", "resolve"]
C
  cat >"$STATE/certs.d/$PRIVATE_REGISTRY_ADDRESS/hosts.toml" <<C
server = "https://$PRIVATE_REGISTRY_ADDRESS"
[host."https://$PRIVATE_REGISTRY_ADDRESS"]
  capabilities = ["pull", "resolve"]
  ca = "$STATE/pki/ca.crt"
C
}

# write_pod_network: a point-to-point link per pod, with all traffic routed by the node. On a bridge, replies between two pods
# would bypass the node's address translation, and Services would not work on kernels without br_netfilter.
write_pod_network() {
  mkdir -p "$STATE/cni"
  cat >"$STATE/cni/10-pods.conflist" <<C
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
  "type": "host-local", "dataDir": "$STATE/pod-addresses", "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
C
}

# import_pause_image imports the pause program into containerd as an image, through an archive as "docker save" writes it. The
# image is not in the registry, so the registry contains only what users pushed.
import_pause_image() {
  local dir=$STATE/pause architecture; mkdir -p "$dir"
  architecture=$(go_architecture)
  tar -C "$BIN" --owner=0 --group=0 --mtime=@0 -cf "$dir/layer.tar" pause
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/pause"],"User":"65532:65532"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$(sha256sum <"$dir/layer.tar" | cut -d' ' -f1)" >"$dir/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "docker.io/$PAUSE_IMAGE" >"$dir/manifest.json"
  tar -C "$dir" -cf "$dir/image.tar" manifest.json config.json layer.tar
  on_node ctr --address "$SOCKET" --namespace k8s.io images import "$dir/image.tar" >"$STATE/log/pause.log" 2>&1 ||
    { cat "$STATE/log/pause.log" >&2; fail "containerd does not take the pause image"; }
}

# go_architecture prints the machine's architecture as in image configurations.
go_architecture() {
  case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac
}

# write_kubelet_config. From 1.35 on, the kubelet rejects control groups of version 1 unless it is configured otherwise; on
# version 2 the setting is omitted. Eviction and image garbage collection are practically disabled: the user decides about a
# nearly full disk.
write_kubelet_config() {
  local old_cgroups=""
  [ -e /sys/fs/cgroup/cgroup.controllers ] || old_cgroups="failCgroupV1: false"
  printf 'nameserver %s\n' "$NODE_ADDRESS" >"$STATE/resolv.conf"
  cat >"$STATE/kubelet.yaml" <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $STATE/pki/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$CLUSTER_NAME
$old_cgroups
failSwapOn: false
containerRuntimeEndpoint: unix://$SOCKET
clusterDNS: ["$NODE_ADDRESS"]
clusterDomain: cluster.local
resolvConf: $STATE/resolv.conf
podLogsDir: $STATE/podlogs
maxPods: 200
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "50Mi"}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
registryPullQPS: 0
syncFrequency: 10s
C
}

# start_dns listens on every address of the node. The file dns-hosts (lines as in /etc/hosts, reloaded after a change) is for
# tests that need a name of their own.
start_dns() {
  touch "$STATE/dns-hosts"
  cat >"$STATE/Corefile" <<C
.:53 {
  errors
  cache 5
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $STATE/coredns.kubeconfig
    pods insecure
    fallthrough in-addr.arpa
  }
  hosts $STATE/dns-hosts {
    reload 2s
    fallthrough
  }
  template ANY ANY {
    rcode NXDOMAIN
  }
}
C
  start coredns "$BIN/coredns" -conf "$STATE/Corefile"
  wait_for 30 coredns listens_on "$NODE_ADDRESS:53"
}

# wait_until_ready waits for the node and for the default ServiceAccount. The controller manager creates the ServiceAccount a
# moment after the node is Ready, and a pod that is created before is rejected.
wait_until_ready() {
  wait_for 60 kubelet kubectl_admin get node node1
  wait_for 60 kubelet kubectl_admin wait --for=condition=Ready node/node1 --timeout=2s
  wait_for 30 kube-controller-manager kubectl_admin get serviceaccount default
}
