package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// nodeCredentialsURL is the documentation about credentials that only nodes have.
const nodeCredentialsURL = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/use/private-registries.md#credentials-that-only-nodes-have"

// maxNamed bounds how many Secrets a message names.
const maxNamed = 3

// nodeHosts are the private registries of clouds whose nodes get their credentials from the cloud itself, through a credential
// provider plugin of the kubelet (https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/, see its
// matchImages; all partitions of AWS: https://github.com/awslabs/amazon-ecr-credential-helper).
var nodeHosts = []string{
	// Amazon ECR, its FIPS endpoints included.
	"*.dkr.ecr*.*.amazonaws.com", "*.dkr.ecr*.*.amazonaws.com.cn", "*.dkr.ecr*.*.amazonaws.eu",
	"*.dkr-ecr*.*.on.aws", "*.dkr-ecr*.*.on.amazonwebservices.com.cn",
	"*.dkr.ecr*.*.c2s.ic.gov", "*.dkr.ecr*.*.sc2s.sgov.gov", "*.dkr.ecr*.*.csp.hci.ic.gov", "*.dkr.ecr*.*.cloud.adc-e.uk",
	// Google Artifact Registry and Container Registry.
	"*-docker.pkg.dev", "gcr.io", "*.gcr.io",
	// Azure Container Registry.
	"*.azurecr.io", "*.azurecr.cn", "*.azurecr.us",
}

// nodesHaveCredentials reports whether pods may run an image of this host without any pull secret, with credentials of their nodes.
func nodesHaveCredentials(host string) bool {
	return slices.ContainsFunc(nodeHosts, func(pattern string) bool { return matchHost(pattern, host) })
}

// explainRefusal adds the probable cause and the remedy to the error of a registry that accepted neither the fitting credentials nor
// an anonymous request. refused are the credentials that it rejected.
func (c Credentials) explainRefusal(ref name.Reference, refused []Credential, err error) error {
	host, missing := workerapi.CanonicalHost(ref.Context().RegistryStr()), c.unusableFor(ref.Context())
	switch {
	case reason(err) != workerapi.ReasonUnauthorized:
		if len(missing) == 0 {
			return err
		}
		// Many registries answer "not found" to clients that may not know of a private image.
		return fmt.Errorf("%w; if it is private: %s cannot be used", err, describeUnusable(missing))
	case len(refused) > 0:
		also := ""
		if len(missing) > 0 {
			also = ", and " + describeUnusable(missing) + " cannot be used"
		}
		return failure.New(workerapi.ReasonUnauthorized,
			fmt.Errorf("%s refuses the credential of %s%s; renew it, or let it read this repository: %w", host, describePullSecrets(refused), also, err))
	case len(missing) > 0:
		correct := "the pods' imagePullSecrets"
		if name := missing[0].secret; secretName.MatchString(name) {
			correct = fmt.Sprintf("it in the pods' namespace: kubectl create secret docker-registry %s --docker-server=%s …", name, host)
		}
		return failure.New(workerapi.ReasonPullSecretMissing,
			fmt.Errorf("%s requires credentials, and %s cannot be used; correct %s: %w", host, describeUnusable(missing), correct, err))
	case nodesHaveCredentials(host):
		return failure.New(workerapi.ReasonNodeCredentials,
			fmt.Errorf("%s requires credentials, and no pull secret of the image's pods has any; those of the nodes cannot be used: see %s: %w",
				host, nodeCredentialsURL, err))
	}
	return failure.New(workerapi.ReasonUnauthorized,
		fmt.Errorf("%s requires credentials, and no pull secret of the image's pods has any; give the pods an imagePullSecret, also where only nodes have credentials: see %s: %w",
			host, nodeCredentialsURL, err))
}

// describeUnusable lists unusable pull secrets with their problems.
func describeUnusable(all []unusableEntry) string {
	return enumerate(all, func(u unusableEntry) string { return fmt.Sprintf("%q (%s)", u.secret, u.problem) })
}

// describePullSecrets lists the pull secrets that hold the credentials.
func describePullSecrets(all []Credential) string { return enumerate(all, Credential.String) }

// enumerate joins the first maxNamed different names, and adds the number of the others.
func enumerate[T any](all []T, text func(T) string) string {
	var names []string
	for _, one := range all {
		if named := text(one); !slices.Contains(names, named) {
			names = append(names, named)
		}
	}
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return "pull secret " + strings.Join(names, ", ") + more
}
