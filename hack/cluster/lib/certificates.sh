# The cluster's certificate authority, one certificate per identity, and a kubeconfig for each client.
# shellcheck shell=bash

# The certificates are valid longer than any cluster is used. Their keys stay in $STATE, which only root can read.
CERTIFICATE_DAYS=365

make_certificates() {
  mkdir -p "$STATE/pki"
  (
    cd "$STATE/pki"
    new_key ca; openssl req -x509 -new -key ca.key -out ca.crt -days $CERTIFICATE_DAYS -subj "/CN=$CLUSTER_NAME"
    new_key service-accounts; openssl pkey -in service-accounts.key -pubout -out service-accounts.pub
    sign kube-apiserver /CN=kube-apiserver "subjectAltName=IP:127.0.0.1,IP:$NODE_ADDRESS,IP:$FIRST_SERVICE,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
    sign private-registry /CN=private-registry "subjectAltName=IP:$NODE_ADDRESS"
    # The names are defined by Kubernetes: its authorizers identify each component by them.
    sign admin /O=system:masters/CN=admin
    sign kube-controller-manager /CN=system:kube-controller-manager
    sign kube-scheduler /CN=system:kube-scheduler
    sign kubelet /O=system:nodes/CN=system:node:node1
    sign kube-proxy /CN=system:kube-proxy
    sign coredns /CN=coredns
  ) >"$STATE/log/certificates.log" 2>&1 9<&- || { cat "$STATE/log/certificates.log" >&2; fail "openssl could not make the certificates"; }
  local client
  for client in admin kube-controller-manager kube-scheduler kubelet kube-proxy coredns; do
    kubeconfig "$client" >"$STATE/$client.kubeconfig"
  done
}

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

# sign NAME SUBJECT [EXTENSION] writes NAME.key and NAME.crt.
sign() {
  new_key "$1"
  openssl req -new -key "$1.key" -out "$1.csr" -subj "$2"
  printf 'extendedKeyUsage=serverAuth,clientAuth\n%s\n' "${3:-keyUsage=digitalSignature}" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days $CERTIFICATE_DAYS -out "$1.crt" -extfile "$1.ext"
}

# kubeconfig NAME prints a self-contained kubeconfig, which still works when a test copies it into a pod.
kubeconfig() {
  local pki=$STATE/pki
  cat <<C
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "$APISERVER", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
contexts: [{name: local, context: {cluster: local, user: $1}}]
current-context: local
C
}
