package identity

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/internal/cloudtest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// tokenService is a token service of a cloud.
type tokenService struct {
	cloud *cloudtest.Cloud
	// host and path are those of its requests. path may be the beginning of one.
	host, path string
}

// roundTripper answers the requests to a token service. Others get the cloud's answers.
type roundTripper struct {
	tokenService
	answer func() *http.Response
}

func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != r.host || !strings.HasPrefix(request.URL.Path, r.path) {
		return r.cloud.RoundTrip(request)
	}
	response := r.answer()
	response.Request = request
	return response, nil
}

// FuzzAnswers: whatever a token service answers, or a proxy before it, the result is a credential that identifies somebody, or a failure with a reason and a
// bounded text, which quotes no token.
func FuzzAnswers(f *testing.F) {
	aws := cloudtest.AWS{
		Host: "123456789012.dkr.ecr.eu-central-1.amazonaws.com", API: "api.ecr.eu-central-1.amazonaws.com", STS: "sts.eu-central-1.amazonaws.com",
		Region: "eu-central-1", ClusterRegion: "eu-central-1",
	}
	irsa, gke, azure := aws.New(f), cloudtest.NewGCP("europe-west3-docker.pkg.dev"), cloudtest.NewAzure(f, "company.azurecr.io", "login.microsoftonline.com")
	services := []tokenService{
		{irsa, aws.STS, "/"}, {irsa, aws.API, "/"}, {aws.NewPodIdentity(f), "169.254.170.23", "/"}, {gke, "169.254.169.254", "/"},
		{azure, "login.microsoftonline.com", "/11111111-2222-3333-4444-555555555555/oauth2"},
		{azure, "login.microsoftonline.com", "/11111111-2222-3333-4444-555555555555/v2.0"}, {azure, "company.azurecr.io", "/oauth2/exchange"},
	}
	for i, body := range []string{
		`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</AccessKeyId>` +
			`<SecretAccessKey>s3cret</SecretAccessKey><SessionToken>s3cret</SessionToken><Expiration>2026-05-04T12:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
		`{"authorizationData":[{"authorizationToken":"QVdTOnBhc3N3b3Jk","expiresAt":1777892400,"proxyEndpoint":"https://example.com"}]}`,
		`{"AccessKeyId":"A","SecretAccessKey":"s3cret","Token":"s3cret","Expiration":"2026-05-04T12:00:00Z"}`,
		`{"access_token":"s3cret","expires_in":3599,"token_type":"Bearer"}`,
		`{"token_type":"Bearer","expires_in":3599,"access_token":"s3cret"}`,
		`{"issuer":"https://login.microsoftonline.com/x/v2.0","authorization_endpoint":"https://login.microsoftonline.com/a","token_endpoint":"https://login.microsoftonline.com/t"}`,
		`{"refresh_token":"e30.eyJleHAiOjE3Nzc4OTI0MDB9.s3cret"}`,
	} {
		f.Add(uint8(i), uint16(http.StatusOK), "", []byte(body))
		f.Add(uint8(i), uint16(http.StatusBadRequest), "5", []byte(`{"error":"invalid_client","error_description":"AADSTS700016: unknown\r\nTrace ID: x"}`))
	}
	f.Add(uint8(0), uint16(http.StatusForbidden), "", []byte(`<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>`))
	f.Add(uint8(1), uint16(http.StatusBadRequest), "", []byte(`{"__type":"ThrottlingException","message":"Rate exceeded"}`))
	f.Add(uint8(6), uint16(http.StatusTooManyRequests), "99999999999", []byte(`{"errors":[{"message":"too many"}]}`))
	account := Account{Namespace: "scanning", Name: workerapi.CatalogServiceAccount}
	reasons := map[string]bool{
		workerapi.ReasonRegistryUnavail: true, workerapi.ReasonRegistryThrottled: true, workerapi.ReasonUnauthorized: true, workerapi.ReasonIdentityMissing: true,
	}
	f.Fuzz(func(t *testing.T, index uint8, status uint16, retryAfter string, body []byte) {
		service := services[int(index)%len(services)]
		if status < 200 || status > 599 || service.cloud == gke && status >= 500 {
			return // no HTTP client returns the former, and the metadata server's client waits between two attempts
		}
		transport := &roundTripper{service, func() *http.Response {
			return &http.Response{
				StatusCode: int(status), Header: http.Header{"Retry-After": {retryAfter}, "Location": {"https://evil.example.com/"}},
				Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)),
			}
		}}
		own, err := New(Options{
			Account: account, Getenv: service.cloud.Getenv, Now: time.Now, Log: slog.New(slog.DiscardHandler), Transport: transport, MaxBackoff: time.Nanosecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := own.Credential(t.Context(), workerapi.Registry{Host: service.cloud.Host, Provider: workerapi.ProviderOf(service.cloud.Host)})
		if err == nil {
			if got.Password == "" && got.IdentityToken == "" || status >= 300 {
				t.Errorf("%d %q of %s is taken for the credential %+v", status, body, service.host, got)
			}
			return
		}
		var known *failure.Error
		if !errors.As(err, &known) || !reasons[known.Reason] {
			t.Fatalf("%d %q of %s fails with %v, without a reason of an identity", status, body, service.host, err)
		}
		if known.RetryAfter < 0 || known.RetryAfter > maxRetryAfter || (known.Registry != "") != (known.Reason == workerapi.ReasonRegistryThrottled) {
			t.Errorf("%d %q of %s: a wait of %s for %q, %s", status, body, service.host, known.RetryAfter, known.Registry, known.Reason)
		}
		const maxText = 1024
		if text := err.Error(); len(text) > maxText || strings.Contains(text, "s3cret") && (status < 300 || !strings.Contains(string(body), "s3cret")) {
			t.Errorf("%d %q of %s fails with %q", status, body, service.host, text)
		}
	})
}
