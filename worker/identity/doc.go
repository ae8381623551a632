// Package identity obtains credentials for the clouds' private registries from the workload identity of the worker's pod: IAM roles for
// service accounts and EKS Pod Identity on AWS, Workload Identity Federation for GKE on Google Cloud, Microsoft Entra Workload ID on Azure.
//
// It promises that
//   - only the identity of the ServiceAccount workerapi.CatalogServiceAccount is used: not one of the node, of a file or of another account;
//     on GKE the metadata server decides whose token it returns,
//   - tokens are sent only to the cloud's own hosts, over TLS with well-known authorities and without redirects, and to the endpoints on the
//     pod's own node, past every proxy,
//   - a credential is renewed before it expires,
//   - errors are *failure.Error that say what to configure, without a token.
//
// It does not use github.com/fluxcd/pkg/auth: that falls back to the identity of the node, has no way to exchange its HTTP clients, and links
// the libraries of Kubernetes.
package identity
