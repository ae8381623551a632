package workerapi

import (
	"strings"
	"testing"
)

// TestProviderOf: the private registries of all partitions belong to their cloud, and no host that only looks like one does.
func TestProviderOf(t *testing.T) {
	for host, want := range map[string]string{
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com":             ProviderAWS,
		"123456789012.DKR.ecr.eu-central-1.amazonaws.com":             ProviderAWS,
		"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn":            ProviderAWS,
		"123456789012.dkr.ecr.us-gov-west-1.amazonaws.com":            ProviderAWS,
		"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com":       ProviderAWS,
		"123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu":            ProviderAWS,
		"123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov":               ProviderAWS,
		"123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov":           ProviderAWS,
		"123456789012.dkr.ecr.us-isof-south-1.csp.hci.ic.gov":         ProviderAWS,
		"123456789012.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk":          ProviderAWS,
		"123456789012.dkr-ecr.eu-west-1.on.aws":                       ProviderAWS,
		"123456789012.dkr-ecr-fips.us-east-1.on.aws":                  ProviderAWS,
		"123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn": ProviderAWS,
		"europe-west3-docker.pkg.dev":                                 ProviderGCP,
		"us-docker.pkg.dev":                                           ProviderGCP,
		"gcr.io":                                                      ProviderGCP,
		"eu.gcr.io":                                                   ProviderGCP,
		"company.azurecr.io":                                          ProviderAzure,
		"company-a1b2c3.azurecr.io":                                   ProviderAzure,
		"company.azurecr.cn":                                          ProviderAzure,
		"company.azurecr.us":                                          ProviderAzure,
		"public.ecr.aws":                                              "",
		"docker.io":                                                   "",
		"registry.example.com":                                        "",
		"1.dkr.ecr.eu-central-1.amazonaws.com":                        "",
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com.example.com": "",
		"123456789012.dkr.ecr.eu-central-1.evil.amazonaws.com":        "",
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com:8443":        "",
		"example.com/123456789012.dkr.ecr.eu-central-1.amazonaws.com": "",
		"mygcr.io":                 "",
		"a.b.gcr.io":               "",
		"europe-west3-npm.pkg.dev": "",
		"europe-west3-docker.pkg.dev.example.com": "",
		"azurecr.io":                         "",
		"company.azurecr.io.example.com":     "",
		"company.westeurope.data.azurecr.io": "",
	} {
		if got := ProviderOf(host); got != want {
			t.Errorf("%s: provider %q, want %q", host, got, want)
		}
	}
}

// TestProviderProblem: a provider is only for hosts of its cloud, and only with TLS that nobody else can terminate.
func TestProviderProblem(t *testing.T) {
	const ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	for name, tt := range map[string]struct {
		registry Registry
		want     string // a part of the problem; empty for none
	}{
		"no provider":           {Registry{Host: ecr, PlainHTTP: true}, ""},
		"its cloud":             {Registry{Host: ecr, Provider: ProviderAWS}, ""},
		"its cloud, mirrored":   {Registry{Host: ecr, Provider: ProviderAWS, Mirrors: []string{"mirror.example.com"}}, ""},
		"an unknown cloud":      {Registry{Host: ecr, Provider: "ecr"}, "must be aws, gcp or azure"},
		"another cloud":         {Registry{Host: ecr, Provider: ProviderGCP}, "the cloud that the host belongs to"},
		"no cloud":              {Registry{Host: "registry.example.com", Provider: ProviderAzure}, "the cloud that the host belongs to"},
		"ECR Public":            {Registry{Host: "public.ecr.aws", Provider: ProviderAWS}, "the cloud that the host belongs to"},
		"without TLS":           {Registry{Host: ecr, Provider: ProviderAWS, PlainHTTP: true}, "excludes plainHTTP and caBundle"},
		"with another CA":       {Registry{Host: ecr, Provider: ProviderAWS, CABundle: "PEM"}, "excludes plainHTTP and caBundle"},
		"a port of its own":     {Registry{Host: ecr + ":5000", Provider: ProviderAWS}, "the cloud that the host belongs to"},
		"with the wrong prefix": {Registry{Host: "evil" + ecr, Provider: ProviderAWS}, "the cloud that the host belongs to"},
	} {
		got := tt.registry.ProviderProblem()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: problem %q, want %q", name, got, tt.want)
		}
	}
}
