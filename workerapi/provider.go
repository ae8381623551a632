package workerapi

import "regexp"

// Providers are the clouds whose identities pull images from the cloud's own registries, in Flux's words
// (https://fluxcd.io/flux/components/source/ocirepositories/#provider).
const (
	ProviderAWS   = "aws"
	ProviderGCP   = "gcp"
	ProviderAzure = "azure"
)

// CatalogServiceAccount is the name of the ServiceAccount whose cloud identity catalog Jobs use, in the operator's namespace and in those of
// Scanners. A worker uses no identity of another ServiceAccount.
const CatalogServiceAccount = "scanner-operator-catalog"

// cloudHosts match the hosts of the clouds' private registries, in all partitions.
var cloudHosts = map[string]*regexp.Regexp{
	// Amazon ECR with its FIPS and dual-stack endpoints (https://github.com/awslabs/amazon-ecr-credential-helper, ecr-login/api/client.go).
	// ECR Public (public.ecr.aws) is not among them: everybody may pull from it.
	ProviderAWS: regexp.MustCompile(`^[0-9]{12}\.(dkr\.ecr(-fips)?\.[a-z0-9-]+\.` +
		`(amazonaws\.(com|com\.cn|eu)|c2s\.ic\.gov|sc2s\.sgov\.gov|csp\.hci\.ic\.gov|cloud\.adc-e\.uk)|` +
		`dkr-ecr(-fips)?\.[a-z0-9-]+\.on\.(aws|amazonwebservices\.com\.cn))$`),
	// Artifact Registry and Container Registry (https://docs.cloud.google.com/artifact-registry/docs/docker/authentication).
	ProviderGCP: regexp.MustCompile(`^([a-z0-9-]+\.)?gcr\.io$|^[a-z0-9-]+-docker\.pkg\.dev$`),
	// Azure Container Registry (https://github.com/kubernetes-sigs/cloud-provider-azure, pkg/credentialprovider/azure_credentials.go).
	ProviderAzure: regexp.MustCompile(`^[a-z0-9-]+\.azurecr\.(io|cn|us)$`),
}

// ProviderOf returns the provider of a cloud's private registry; empty for any other host. Nodes of that cloud pull from such a host with
// credentials of their own (https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/).
func ProviderOf(host string) string {
	for provider, hosts := range cloudHosts {
		if hosts.MatchString(CanonicalHost(host)) {
			return provider
		}
	}
	return ""
}

// ProviderProblem returns why the provider of a registry cannot be used; empty if it can, or if there is none. Tokens of a cloud are sent
// only to hosts of that cloud, which have certificates of well-known authorities.
func (r Registry) ProviderProblem() string {
	switch {
	case r.Provider == "":
		return ""
	case cloudHosts[r.Provider] == nil:
		return "must be aws, gcp or azure"
	case ProviderOf(r.Host) != r.Provider:
		return "must be the cloud that the host belongs to: aws for ACCOUNT.dkr.ecr.REGION.amazonaws.com, gcp for LOCATION-docker.pkg.dev, azure for NAME.azurecr.io"
	case r.PlainHTTP || r.CABundle != "":
		return "excludes plainHTTP and caBundle: tokens of a cloud are sent only over TLS, to hosts with certificates of well-known authorities"
	}
	return ""
}
