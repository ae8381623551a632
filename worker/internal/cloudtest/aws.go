package cloudtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Names of the calls of token services, for Cloud.Answers and Cloud.Calls. Those that end in a space are followed by the host.
const (
	STS           = "STS "
	ECR           = "ECR "
	PodIdentity   = "EKS Pod Identity"
	MetadataToken = "metadata server"
	Entra         = "Entra "
	Exchange      = "exchange "
)

// Values of a pod with an AWS identity.
const (
	awsRole   = "arn:aws:iam::210987654321:role/scanner"
	accessKey = "ASIAEXAMPLE"
	awsSecret = "s3cret-access-key"
	session   = "s3cret-session-token"
)

// AWS describes a registry of Amazon ECR, and where its cloud serves tokens.
type AWS struct {
	// Host of the registry.
	Host string
	// API is the host of ECR's API for that registry, and STS the host of the token service in the cluster's region.
	API, STS string
	// Region of the registry. ClusterRegion is that of the pod; empty if the pod does not know it.
	Region, ClusterRegion string
}

// New returns a cloud whose pod has IAM roles for service accounts
// (https://docs.aws.amazon.com/eks/latest/userguide/iam-roles-for-service-accounts.html).
func (a AWS) New(t testing.TB) *Cloud {
	t.Helper()
	c := a.registry()
	token := AccountToken("scanning", "scanner-operator-catalog")
	c.Env = map[string]string{"AWS_ROLE_ARN": awsRole, "AWS_WEB_IDENTITY_TOKEN_FILE": file(t, token), "AWS_REGION": a.ClusterRegion}
	// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
	c.hosts["https://"+a.STS] = c.service(STS+a.STS, func(r *http.Request) string {
		if r.Header.Get("Authorization") != "" {
			return "it is signed, and nobody has a key yet"
		}
		return checkForm(r, map[string]string{
			"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": awsRole, "WebIdentityToken": token, "RoleSessionName": "scanner-operator-catalog",
		})
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>`+
			`<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials>`+
			`<AssumedRoleUser><Arn>arn:aws:sts::210987654321:assumed-role/scanner/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>`+
			`</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			accessKey, awsSecret, session, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	return c
}

// NewPodIdentity returns a cloud whose pod has an EKS Pod Identity association
// (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html).
func (a AWS) NewPodIdentity(t testing.TB) *Cloud {
	t.Helper()
	c := a.registry()
	token := AccountToken("scanning", "scanner-operator-catalog")
	c.Env = map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file(t, token),
		"AWS_REGION": a.ClusterRegion,
	}
	c.hosts["http://169.254.170.23"] = c.service(PodIdentity, func(r *http.Request) string {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/credentials" || r.Header.Get("Authorization") != token {
			return "it is not for /v1/credentials with the pod's token"
		}
		return ""
	}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{
			"AccessKeyId": accessKey, "SecretAccessKey": awsSecret, "Token": session, "AccountId": "210987654321",
			"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		})
	})
	return c
}

// registry returns a cloud with the registry, and with the API that issues its passwords
// (https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html).
func (a AWS) registry() *Cloud {
	var c *Cloud
	c = newCloud(a.Host, fmt.Sprintf("Basic realm=%q,service=%q", "https://"+a.Host+"/", "ecr.amazonaws.com"), func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user == "AWS" && c.isValid(password)
	})
	c.hosts["https://"+a.API] = c.service(ECR+a.API, func(r *http.Request) string {
		// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
		signed := fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/%s/ecr/aws4_request, ", accessKey, time.Now().UTC().Format("20060102"), a.Region)
		switch {
		case r.Header.Get("X-Amz-Target") != "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken":
			return "X-Amz-Target is " + r.Header.Get("X-Amz-Target")
		case !strings.HasPrefix(r.Header.Get("Authorization"), signed):
			return "it is not signed for ECR in " + a.Region
		case r.Header.Get("X-Amz-Security-Token") != session:
			return "it has no session token"
		}
		return ""
	}, func(w http.ResponseWriter, _ *http.Request) {
		password, expires := c.issue("ecr")
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		fmt.Fprintf(w, `{"authorizationData": [{"authorizationToken": %q, "expiresAt": %d, "proxyEndpoint": %q}]}`,
			base64.StdEncoding.EncodeToString([]byte("AWS:"+password)), expires.Unix(), "https://"+a.Host)
	})
	return c
}

// STSError answers like STS with an error.
func STSError(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, code, message)
	}
}

// ECRError answers like the API of ECR with an error.
func ECRError(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type": %q, "message": %q}`, code, message)
	}
}
