package identity_test

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/identity"
	"github.com/scanner-operator/scanner-operator/worker/internal/cloudtest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Hosts of the commercial partitions.
const (
	ecrHost, ecrAPI, stsHost = "123456789012.dkr.ecr.eu-central-1.amazonaws.com", "api.ecr.eu-central-1.amazonaws.com", "sts.eu-central-1.amazonaws.com"
	gcpHost                  = "europe-west3-docker.pkg.dev"
	acrHost, entraHost       = "company.azurecr.io", "login.microsoftonline.com"
)

// frankfurt is a registry in the region of its pods.
var frankfurt = cloudtest.AWS{Host: ecrHost, API: ecrAPI, STS: stsHost, Region: "eu-central-1", ClusterRegion: "eu-central-1"}

func irsa(t *testing.T) *cloudtest.Cloud        { return frankfurt.New(t) }
func podIdentity(t *testing.T) *cloudtest.Cloud { return frankfurt.NewPodIdentity(t) }
func gke(*testing.T) *cloudtest.Cloud           { return cloudtest.NewGCP(gcpHost) }
func azure(t *testing.T) *cloudtest.Cloud       { return cloudtest.NewAzure(t, acrHost, entraHost) }

// partition is a registry of Amazon ECR.
type partition cloudtest.AWS

func (p partition) inAWS(t *testing.T) *cloudtest.Cloud { return cloudtest.AWS(p).New(t) }

// clouds are the ways in which a pod gets an identity.
var clouds = map[string]func(*testing.T) *cloudtest.Cloud{
	"IAM roles for service accounts": irsa, "EKS Pod Identity": podIdentity, "GKE": gke, "Entra Workload ID": azure,
}

// pod pulls with the identity of a pod in a cloud.
type pod struct {
	*registry.Puller
	clock *clock.Fake
	log   strings.Builder
}

func newPod(t *testing.T, cloud *cloudtest.Cloud) *pod {
	t.Helper()
	p := &pod{clock: clock.NewFake(time.Now())}
	cloud.Now = p.clock.Now
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	own, err := identity.New(identity.Options{
		Account: identity.Account{Namespace: "scanning", Name: "scanner-operator-catalog"}, Getenv: cloud.Getenv, Now: p.clock.Now, Log: log,
		Transport: cloud, MaxBackoff: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Puller = &registry.Puller{
		Registries: []workerapi.Registry{{Host: cloud.Host, Provider: workerapi.ProviderOf(cloud.Host)}},
		Identity:   own, Transport: cloud, Log: log, Now: p.clock.Now,
	}
	return p
}

// pull pulls an image with all of its layers.
func (p *pod) pull(t *testing.T, cloud *cloudtest.Cloud) error {
	t.Helper()
	reference := cloud.Push(t, registrytest.Image(t, registrytest.Files{"a": "1"}, registrytest.Files{"b": "2"}, registrytest.Files{"c": "3"}))
	image, err := p.Pull(t.Context(), []string{reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		return err
	}
	layers, err := image.Content.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		_ = content.Close()
	}
	return nil
}

// TestPullByIdentity: in each partition, the token services of that partition are called, in the region of the registry or of the pod.
func TestPullByIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		cloud func(*testing.T) *cloudtest.Cloud
		calls []string
	}{
		"AWS":                   {irsa, []string{"STS " + stsHost, "ECR " + ecrAPI}},
		"AWS, EKS Pod Identity": {podIdentity, []string{"EKS Pod Identity", "ECR " + ecrAPI}},
		"AWS, another region": {partition{
			Host: "123456789012.dkr.ecr.us-west-2.amazonaws.com", API: "api.ecr.us-west-2.amazonaws.com", STS: stsHost, Region: "us-west-2", ClusterRegion: "eu-central-1",
		}.inAWS, []string{"STS " + stsHost, "ECR api.ecr.us-west-2.amazonaws.com"}},
		"AWS, the pod's region unknown": {partition{
			Host: ecrHost, API: ecrAPI, STS: stsHost, Region: "eu-central-1",
		}.inAWS, []string{"STS " + stsHost, "ECR " + ecrAPI}},
		"AWS, China": {partition{
			Host: "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", API: "api.ecr.cn-north-1.amazonaws.com.cn", STS: "sts.cn-north-1.amazonaws.com.cn",
			Region: "cn-north-1", ClusterRegion: "cn-north-1",
		}.inAWS, []string{"STS sts.cn-north-1.amazonaws.com.cn", "ECR api.ecr.cn-north-1.amazonaws.com.cn"}},
		"AWS, GovCloud": {partition{
			Host: "123456789012.dkr.ecr.us-gov-west-1.amazonaws.com", API: "api.ecr.us-gov-west-1.amazonaws.com", STS: "sts.us-gov-west-1.amazonaws.com",
			Region: "us-gov-west-1", ClusterRegion: "us-gov-west-1",
		}.inAWS, []string{"STS sts.us-gov-west-1.amazonaws.com", "ECR api.ecr.us-gov-west-1.amazonaws.com"}},
		"AWS, GovCloud with FIPS": {partition{
			Host: "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", API: "api.ecr-fips.us-gov-west-1.amazonaws.com", STS: "sts.us-gov-west-1.amazonaws.com",
			Region: "us-gov-west-1", ClusterRegion: "us-gov-west-1",
		}.inAWS, []string{"STS sts.us-gov-west-1.amazonaws.com", "ECR api.ecr-fips.us-gov-west-1.amazonaws.com"}},
		"AWS, dual-stack": {partition{
			Host: "123456789012.dkr-ecr.eu-central-1.on.aws", API: "ecr.eu-central-1.api.aws", STS: stsHost, Region: "eu-central-1", ClusterRegion: "eu-central-1",
		}.inAWS, []string{"STS " + stsHost, "ECR ecr.eu-central-1.api.aws"}},
		"AWS, European Sovereign Cloud": {partition{
			Host: "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu", API: "api.ecr.eusc-de-east-1.amazonaws.eu", STS: "sts.eusc-de-east-1.amazonaws.eu",
			Region: "eusc-de-east-1", ClusterRegion: "eusc-de-east-1",
		}.inAWS, []string{"STS sts.eusc-de-east-1.amazonaws.eu", "ECR api.ecr.eusc-de-east-1.amazonaws.eu"}},
		"Google Cloud":                     {gke, []string{"metadata server"}},
		"Google Cloud, Container Registry": {func(*testing.T) *cloudtest.Cloud { return cloudtest.NewGCP("eu.gcr.io") }, []string{"metadata server"}},
		"Azure":                            {azure, []string{"Entra " + entraHost, "exchange " + acrHost}},
		"Azure, China": {func(t *testing.T) *cloudtest.Cloud {
			return cloudtest.NewAzure(t, "company.azurecr.cn", "login.chinacloudapi.cn")
		},
			[]string{"Entra login.chinacloudapi.cn", "exchange company.azurecr.cn"}},
		"Azure, US Government": {func(t *testing.T) *cloudtest.Cloud {
			return cloudtest.NewAzure(t, "company.azurecr.us", "login.microsoftonline.us")
		},
			[]string{"Entra login.microsoftonline.us", "exchange company.azurecr.us"}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := tt.cloud(t)
			p := newPod(t, cloud)
			if err := p.pull(t, cloud); err != nil {
				t.Fatalf("the pull failed: %v", err)
			}
			if diff := cmp.Diff(tt.calls, cloud.Calls()); diff != "" {
				t.Errorf("calls of token services (-want +got):\n%s", diff)
			}
			if strings.Contains(p.log.String(), "s3cret") {
				t.Errorf("the log contains a secret:\n%s", p.log.String())
			}
		})
	}
}

// TestCredentialIsRenewed: a credential that is about to expire between two layers is replaced before the next request, and otherwise used
// again.
func TestCredentialIsRenewed(t *testing.T) {
	for name, newCloud := range clouds {
		for _, tt := range []struct {
			name     string
			lifetime time.Duration
			times    int
		}{
			{"expires during the pull", 5 * time.Minute, 2},
			{"lasts", 12 * time.Hour, 1},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				cloud := newCloud(t)
				cloud.Lifetime = tt.lifetime
				p := newPod(t, cloud)
				// The configuration and the three layers take three minutes each, one after the other.
				cloud.OnBlob = func() { p.clock.Advance(3 * time.Minute) }
				if err := p.pull(t, cloud); err != nil {
					t.Fatalf("the pull failed: %v", err)
				}
				issued := 0
				for _, call := range cloud.Calls() {
					if strings.HasPrefix(call, "ECR ") || strings.HasPrefix(call, "metadata") || strings.HasPrefix(call, "exchange ") {
						issued++
					}
				}
				if issued != tt.times {
					t.Errorf("%d credentials were issued, want %d: %q", issued, tt.times, cloud.Calls())
				}
			})
		}
	}
}

// TestFailures: each failure has the reason that decides about retries, and says who has to change what.
func TestFailures(t *testing.T) {
	without := func(newCloud func(*testing.T) *cloudtest.Cloud, variables ...string) func(*testing.T) *cloudtest.Cloud {
		return func(t *testing.T) *cloudtest.Cloud {
			cloud := newCloud(t)
			for _, variable := range variables {
				delete(cloud.Env, variable)
			}
			return cloud
		}
	}
	with := func(newCloud func(*testing.T) *cloudtest.Cloud, variable, value string) func(*testing.T) *cloudtest.Cloud {
		return func(t *testing.T) *cloudtest.Cloud {
			cloud := newCloud(t)
			cloud.Env[variable] = value
			return cloud
		}
	}
	answering := func(newCloud func(*testing.T) *cloudtest.Cloud, call string, answer http.HandlerFunc) func(*testing.T) *cloudtest.Cloud {
		return func(t *testing.T) *cloudtest.Cloud {
			cloud := newCloud(t)
			cloud.Answers = map[string]http.HandlerFunc{call: answer}
			return cloud
		}
	}
	retryAfter := func(seconds string, next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", seconds)
			next(w, r)
		}
	}
	status := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) }
	}
	gone := filepath.Join(t.TempDir(), "gone")
	const account = "ServiceAccount scanning/scanner-operator-catalog"
	for name, tt := range map[string]struct {
		cloud  func(*testing.T) *cloudtest.Cloud
		reason string
		want   []string
		wait   int // seconds
	}{
		"AWS, no identity": {without(irsa, "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"), workerapi.ReasonIdentityMissing,
			[]string{account + " has no identity of AWS", "eks.amazonaws.com/role-arn", "EKS Pod Identity association", "cloud-registries.md"}, 0},
		"AWS, no token": {with(irsa, "AWS_WEB_IDENTITY_TOKEN_FILE", gone), workerapi.ReasonIdentityMissing, []string{"AWS_WEB_IDENTITY_TOKEN_FILE cannot be read"}, 0},
		"AWS, an agent elsewhere": {with(podIdentity, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.169.254/latest/meta-data/"), workerapi.ReasonIdentityMissing,
			[]string{"is not the address of the EKS Pod Identity Agent"}, 0},
		"AWS, the role does not trust the account": {answering(irsa, "STS "+stsHost, cloudtest.STSError(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")),
			workerapi.ReasonUnauthorized, []string{"AWS STS refuses " + account + ": AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity"}, 0},
		"AWS, the token expired": {answering(irsa, "STS "+stsHost, cloudtest.STSError(400, "ExpiredTokenException", "Token expired: current date/time must be before the expiration")),
			workerapi.ReasonUnauthorized, []string{"ExpiredTokenException"}, 0},
		"AWS, a region that is not enabled": {answering(irsa, "STS "+stsHost, cloudtest.STSError(403, "RegionDisabledException", "STS is not activated in this region")),
			workerapi.ReasonUnauthorized, []string{"STS is not activated in this region"}, 0},
		"AWS, a region that does not exist": {with(irsa, "AWS_REGION", "eu-nowhere-1"), workerapi.ReasonRegistryUnavail, []string{"AWS STS does not answer", "sts.eu-nowhere-1.amazonaws.com"}, 0},
		"AWS, the role of another partition": {answering(irsa, "ECR "+ecrAPI, cloudtest.ECRError(400, "UnrecognizedClientException", "The security token included in the request is invalid.")),
			workerapi.ReasonUnauthorized, []string{"Amazon ECR refuses " + account + ": UnrecognizedClientException"}, 0},
		"AWS, the role has no permission": {answering(irsa, "ECR "+ecrAPI, cloudtest.ECRError(400, "AccessDeniedException", "User: arn is not authorized to perform: ecr:GetAuthorizationToken on resource: *")),
			workerapi.ReasonUnauthorized, []string{"is not authorized to perform: ecr:GetAuthorizationToken"}, 0},
		"AWS, STS throttles": {answering(irsa, "STS "+stsHost, cloudtest.STSError(400, "Throttling", "Rate exceeded")), workerapi.ReasonRegistryThrottled, []string{"Rate exceeded"}, 0},
		"AWS, ECR throttles": {answering(irsa, "ECR "+ecrAPI, cloudtest.ECRError(400, "ThrottlingException", "Rate exceeded")), workerapi.ReasonRegistryThrottled, []string{"Rate exceeded"}, 0},
		"AWS, ECR is unavailable": {answering(irsa, "ECR "+ecrAPI, cloudtest.ECRError(503, "ServerException", "try later")),
			workerapi.ReasonRegistryUnavail, []string{"Amazon ECR answers with status 503"}, 0},
		"AWS, a proxy answers": {answering(irsa, "STS "+stsHost, status(200, "<html>s3cret</html>")), workerapi.ReasonRegistryUnavail,
			[]string{"AWS STS answers with status 200", "proxy"}, 0},
		"AWS, a proxy redirects": {answering(irsa, "STS "+stsHost, status(302, "<html>s3cret</html>")), workerapi.ReasonRegistryUnavail,
			[]string{"AWS STS answers with status 302", "proxy"}, 0},
		"AWS, the association does not exist": {answering(podIdentity, "EKS Pod Identity", status(400, "[ResourceNotFoundException] no association")),
			workerapi.ReasonUnauthorized, []string{"the EKS Pod Identity Agent refuses " + account, "no association"}, 0},
		"AWS, the agent fails": {answering(podIdentity, "EKS Pod Identity", status(500, "oops")), workerapi.ReasonRegistryUnavail, []string{"the EKS Pod Identity Agent answers with status 500"}, 0},

		"Google Cloud, no metadata server": {func(t *testing.T) *cloudtest.Cloud {
			cloud := gke(t)
			cloud.RemoveMetadataServer()
			return cloud
		}, workerapi.ReasonIdentityMissing, []string{account + " reaches no metadata server", "iam.gke.io/gcp-service-account"}, 0},
		"Google Cloud, no account": {answering(gke, "metadata server", status(404, "not found")), workerapi.ReasonIdentityMissing, []string{"iam.gke.io/gcp-service-account"}, 0},
		"Google Cloud, the account may not be used": {answering(gke, "metadata server", status(403, "Permission 'iam.serviceAccounts.getAccessToken' denied")),
			workerapi.ReasonUnauthorized, []string{"the metadata server refuses " + account, "iam.serviceAccounts.getAccessToken"}, 0},
		"Google Cloud, throttled":  {answering(gke, "metadata server", status(429, "slow down")), workerapi.ReasonRegistryThrottled, []string{"slow down"}, 0},
		"Google Cloud, unreadable": {answering(gke, "metadata server", status(200, "s3cret")), workerapi.ReasonRegistryUnavail, []string{"no credential that can be read"}, 0},

		"Azure, no webhook":    {without(azure, "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"), workerapi.ReasonIdentityMissing, []string{account + " has no identity of Azure", "azure.workload.identity/client-id"}, 0},
		"Azure, no annotation": {with(azure, "AZURE_CLIENT_ID", ""), workerapi.ReasonIdentityMissing, []string{"azure.workload.identity/client-id"}, 0},
		"Azure, no token":      {with(azure, "AZURE_FEDERATED_TOKEN_FILE", gone), workerapi.ReasonIdentityMissing, []string{"AZURE_FEDERATED_TOKEN_FILE cannot be read"}, 0},
		"Azure, no federated credential": {answering(azure, "Entra "+entraHost, cloudtest.EntraError(400, "invalid_client", "AADSTS70021: No matching federated identity record found.\r\nTrace ID: 1")),
			workerapi.ReasonUnauthorized, []string{"Microsoft Entra refuses " + account + ": AADSTS70021: No matching federated identity record found. ("}, 0},
		"Azure, Entra throttles": {answering(azure, "Entra "+entraHost, retryAfter("90", cloudtest.EntraError(429, "temporarily_unavailable", "AADSTS90055: throttled"))),
			workerapi.ReasonRegistryThrottled, []string{"AADSTS90055"}, 90},
		"Azure, Entra is unavailable": {answering(azure, "Entra "+entraHost, status(503, "")), workerapi.ReasonRegistryUnavail, []string{"Microsoft Entra answers with status 503"}, 0},
		"Azure, a proxy answers": {answering(azure, "Entra "+entraHost, status(200, `{"access_token": "s3cret", "expires_in": []}`)), workerapi.ReasonRegistryUnavail,
			[]string{"Microsoft Entra answers with status 200", "proxy"}, 0},
		"Azure, a proxy answers the exchange": {answering(azure, "exchange "+acrHost, status(200, `{"refresh_token": ["s3cret"]}`)), workerapi.ReasonRegistryUnavail,
			[]string{"the registry's token exchange answers with status 200", "proxy"}, 0},
		"Azure, a registry of another tenant": {answering(azure, "exchange "+acrHost, cloudtest.RegistryError(401, "UNAUTHORIZED", "the tenant has no access")),
			workerapi.ReasonUnauthorized, []string{"the registry's token exchange refuses " + account + ": the tenant has no access"}, 0},
		"Azure, the registry throttles": {answering(azure, "exchange "+acrHost, retryAfter("30", cloudtest.RegistryError(429, "TOOMANYREQUESTS", "too many"))),
			workerapi.ReasonRegistryThrottled, []string{"too many"}, 30},
		"Azure, an unreadable token": {answering(azure, "exchange "+acrHost, status(200, `{"refresh_token": "s3cret"}`)), workerapi.ReasonRegistryUnavail, []string{"no credential that can be read"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := tt.cloud(t)
			p := newPod(t, cloud)
			err := p.pull(t, cloud)
			if err == nil {
				t.Fatal("the pull succeeded")
			}
			described := failure.Describe(err, "none")
			if described.Reason != tt.reason || described.RetryAfterSeconds != tt.wait {
				t.Errorf("got %+v, want %s and a wait of %d seconds", described, tt.reason, tt.wait)
			}
			if (described.Reason == workerapi.ReasonRegistryThrottled) != (described.Registry == cloud.Host) {
				t.Errorf("got %+v, want the registry if and only if it throttles", described)
			}
			for _, want := range tt.want {
				if !strings.Contains(described.Message, want) {
					t.Errorf("the message does not say %q:\n%s", want, described.Message)
				}
			}
			if strings.Contains(described.Message+p.log.String(), "s3cret") {
				t.Errorf("message or log contain a secret:\n%s\n%s", described.Message, p.log.String())
			}
		})
	}
}

// TestRegistryRefusesTheIdentity: an identity with a credential that may not pull is distinguished from one without a credential.
func TestRegistryRefusesTheIdentity(t *testing.T) {
	for name, newCloud := range clouds {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud(t)
			cloud.RefusePulls = true
			p := newPod(t, cloud)
			described := failure.Describe(p.pull(t, cloud), "none")
			want := cloud.Host + " refuses the " + workerapi.ProviderOf(cloud.Host) + " identity of ServiceAccount scanning/scanner-operator-catalog; let it read this repository"
			if described.Reason != workerapi.ReasonUnauthorized || !strings.Contains(described.Message, want) {
				t.Errorf("got %+v, want %s with %q", described, workerapi.ReasonUnauthorized, want)
			}
		})
	}
}

// TestRedirectOfATokenService: a redirect is not followed, since the other host could get a token.
func TestRedirectOfATokenService(t *testing.T) {
	cloud := irsa(t)
	cloud.Answers = map[string]http.HandlerFunc{"STS " + stsHost: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+ecrAPI+"/", http.StatusFound)
	}}
	p := newPod(t, cloud)
	if err := p.pull(t, cloud); err == nil {
		t.Error("the pull succeeded")
	}
	if diff := cmp.Diff([]string{"STS " + stsHost}, cloud.Calls()); diff != "" {
		t.Errorf("calls of token services (-want +got):\n%s", diff)
	}
}

// TestAccountOf: the ServiceAccount is the one in the token.
func TestAccountOf(t *testing.T) {
	if got, err := identity.AccountOf(cloudtest.AccountToken("shop", "default") + "\n"); err != nil || got != (identity.Account{Namespace: "shop", Name: "default"}) {
		t.Errorf("got %v (%v), want shop/default", got, err)
	}
	for name, token := range map[string]string{
		"nothing": "", "another text": "s3cret", "no base64": "a.%.c", "no JSON": "a.czNjcmV0.c", "of a user": cloudtest.JWT(map[string]any{"sub": "jane"}),
	} {
		if _, err := identity.AccountOf(token); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error without the token", name, err)
		}
	}
}
