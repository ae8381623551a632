package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Variables that EKS sets in pods: for IAM roles for service accounts
// (https://docs.aws.amazon.com/eks/latest/userguide/pod-configuration.html), and for EKS Pod Identity
// (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html).
const (
	awsRoleARN       = "AWS_ROLE_ARN"
	awsRoleToken     = "AWS_WEB_IDENTITY_TOKEN_FILE"
	awsRegion        = "AWS_REGION"
	awsDefaultRegion = "AWS_DEFAULT_REGION"
	podIdentityURL   = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	podIdentityToken = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
)

// awsSession names the sessions of the role in CloudTrail.
const awsSession = workerapi.CatalogServiceAccount

// podIdentityHosts are the addresses of the EKS Pod Identity Agent on each node.
var podIdentityHosts = []string{"169.254.170.23", "fd00:ec2::23"}

// issueAWS requests a registry's password from Amazon ECR
// (https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html), in the registry's own region.
func (i *Identity) issueAWS(ctx context.Context, host string) (credential, error) {
	region, endpoint := parseECR(host)
	role, err := i.awsRole(ctx, host, region)
	if err != nil {
		return credential{}, err
	}
	client := ecr.New(ecr.Options{
		Region: region, EndpointOptions: endpoint, Credentials: credentials.StaticCredentialsProvider{Value: role}, HTTPClient: i.cloud, Retryer: i.awsRetryer(),
	})
	answer, err := client.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return credential{}, i.awsFailure("Amazon ECR", host, err)
	}
	if len(answer.AuthorizationData) == 0 {
		return credential{}, errUnreadable("Amazon ECR")
	}
	data := answer.AuthorizationData[0]
	raw, err := base64.StdEncoding.DecodeString(aws.ToString(data.AuthorizationToken))
	user, password, found := strings.Cut(string(raw), ":")
	if err != nil || !found {
		return credential{}, errUnreadable("Amazon ECR")
	}
	return credential{AuthConfig: authn.AuthConfig{Username: user, Password: password}, expires: aws.ToTime(data.ExpiresAt)}, nil
}

// errUnreadable is the failure for an answer without a credential. It does not quote the answer, which may hold one.
func errUnreadable(service string) error {
	return failure.New(workerapi.ReasonRegistryUnavail, fmt.Errorf("%s sent no credential that can be read", service))
}

// parseECR returns the region of a host of Amazon ECR, and which of the region's endpoints suits it: ACCOUNT.dkr.ecr[-fips].REGION.…, or
// ACCOUNT.dkr-ecr[-fips].REGION.on.… for the dual-stack endpoints. host must be of workerapi.ProviderAWS.
func parseECR(host string) (region string, endpoint ecr.EndpointResolverOptions) {
	labels := strings.Split(host, ".")
	service, region := labels[1], labels[2]
	if service == "dkr" {
		service, region = labels[2], labels[3]
	} else {
		endpoint.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
	}
	if strings.HasSuffix(service, "-fips") {
		endpoint.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled
	}
	return region, endpoint
}

// awsRole returns the temporary credentials of the pod's role. region is that of the registry, for pods that do not know their own.
func (i *Identity) awsRole(ctx context.Context, host, region string) (aws.Credentials, error) {
	service, provider, err := i.awsProvider(region)
	if err != nil {
		return aws.Credentials{}, err
	}
	role, err := provider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, i.awsFailure(service, host, err)
	}
	return role, nil
}

// awsProvider returns what issues the credentials of the pod's role, and its name.
func (i *Identity) awsProvider(region string) (service string, _ aws.CredentialsProvider, _ error) {
	switch role, endpoint := i.getenv(awsRoleARN), i.getenv(podIdentityURL); {
	case role != "" && i.getenv(awsRoleToken) != "":
		file, err := i.tokenFile(awsRoleToken)
		if err != nil {
			return "", nil, err
		}
		client := sts.New(sts.Options{
			Region: cmp.Or(i.getenv(awsRegion), i.getenv(awsDefaultRegion), region), HTTPClient: i.cloud, Retryer: i.awsRetryer(),
		})
		return "AWS STS", stscreds.NewWebIdentityRoleProvider(client, role, stscreds.IdentityTokenFile(file), func(o *stscreds.WebIdentityRoleOptions) {
			o.RoleSessionName = awsSession
		}), nil
	case endpoint != "":
		if address, err := url.Parse(endpoint); err != nil || !slices.Contains(podIdentityHosts, address.Hostname()) {
			return "", nil, failure.New(workerapi.ReasonIdentityMissing, fmt.Errorf("%s is not the address of the EKS Pod Identity Agent", podIdentityURL))
		}
		file, err := i.tokenFile(podIdentityToken)
		if err != nil {
			return "", nil, err
		}
		return "the EKS Pod Identity Agent", endpointcreds.New(endpoint, func(o *endpointcreds.Options) {
			o.HTTPClient, o.Retryer = i.local, i.awsRetryer()
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
				token, err := os.ReadFile(file)
				return string(token), err
			})
		}), nil
	}
	return "", nil, i.missing("AWS", "annotate the ServiceAccount with eks.amazonaws.com/role-arn, or create an EKS Pod Identity association for it")
}

func (i *Identity) awsRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, i.maxBackoff })
}

// awsFailure returns the failure for an error of one of AWS' services.
func (i *Identity) awsFailure(service, host string, err error) error {
	a := answer{service: service, host: host}
	var response interface{ HTTPStatusCode() int }
	if errors.As(err, &response) {
		a.status = response.HTTPStatusCode()
	}
	var refused smithy.APIError
	if errors.As(err, &refused) {
		a.detail = strings.TrimPrefix(refused.ErrorCode()+": "+refused.ErrorMessage(), ": ")
		_, a.throttled = retry.DefaultThrottleErrorCodes[refused.ErrorCode()]
	}
	return i.failure(a, err)
}
