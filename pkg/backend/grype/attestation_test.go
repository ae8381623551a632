package grype

import (
	"slices"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// trusting returns a source that trusts an identity.
func trusting(identity string) workerapi.SBOMSource {
	return workerapi.SBOMSource{
		Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{Issuer: "https://issuer.example.com", Identity: identity}}, TrustedRoot: "{}",
	}
}

// TestWhichJobsAcceptUploads: a Job may use the latest upload, unless the image's content was cataloged. The failure of a Job without it is not
// that of one with it.
func TestWhichJobsAcceptUploads(t *testing.T) {
	for name, tt := range map[string]struct {
		catalog *store.Origin
		done    bool
	}{
		"no catalog":                 {nil, false},
		"a catalog of content":       {&store.Origin{}, true},
		"a catalog of the upload":    {&store.Origin{Policy: "upload:2"}, true},
		"a catalog of a former one":  {&store.Origin{Policy: "upload:1"}, false},
		"what a former signer signs": {&store.Origin{Policy: "former"}, false},
		"what others sign":           {&store.Origin{Policy: trusting("a").Policy()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(o *Options) {
				o.Config.Registries = []config.Registry{{Host: "a.example.com", SBOM: trusting("a")}}
			})
			web := private("web", "regcred")
			before := web
			web.SBOMPolicy = "upload:2"
			e.rememberFailure(before, &backend.Failure{Reason: workerapi.ReasonNodeCredentials})
			if tt.catalog != nil {
				e.must(e.Store.SaveCatalog(t.Context(), store.Catalog{
					Engine: Engine, Key: web.Key, Scope: web.Scope, PlatformDigest: platformDigest(web), Packages: 1, Tool: "syft", CatalogedAt: noon, Origin: *tt.catalog,
				}, nil))
			}
			if got := e.index(web); (got == "done") != tt.done {
				t.Fatalf("index says %q, want done: %v", got, tt.done)
			}
			if tt.done {
				return
			}
			job := e.job("catalog")
			args := job.Spec.Template.Spec.Containers[0].Args
			if !slices.Contains(args, "--accept-upload") || slices.Contains(args, "--prefer-attestation") {
				t.Errorf("the arguments are %q, want --accept-upload", args)
			}
			record, err := e.Store.JobByUID(t.Context(), string(job.UID))
			e.must(err)
			if record.SBOMPolicy != web.SBOMPolicy {
				t.Errorf("the record has the policy %q, want %q", record.SBOMPolicy, web.SBOMPolicy)
			}
		})
	}
}

// TestWhichJobsPreferAttestations: a Job may use an attested SBOM unless one of another registry, whose signers are trusted, counts for the digest.
func TestWhichJobsPreferAttestations(t *testing.T) {
	one, other, former := trusting("one"), trusting("other"), trusting("former")
	for name, tt := range map[string]struct {
		image   workerapi.SBOMSource
		catalog *store.Origin
		// done means that there is no Job: the catalog counts.
		done, prefers bool
	}{
		"a registry that prefers none":                     {workerapi.SBOMSource{}, nil, false, false},
		"a registry that prefers attestations":             {one, nil, false, true},
		"cataloged before":                                 {one, &store.Origin{}, true, false},
		"attested before":                                  {one, &store.Origin{Policy: one.Policy()}, true, false},
		"attested for another registry":                    {one, &store.Origin{Policy: other.Policy()}, false, false},
		"attested by who is not trusted any more":          {one, &store.Origin{Policy: former.Policy()}, false, true},
		"attested for another registry, this prefers none": {workerapi.SBOMSource{}, &store.Origin{Policy: one.Policy()}, false, false},
		"attestations are not preferred any more":          {workerapi.SBOMSource{}, &store.Origin{Policy: former.Policy()}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, func(o *Options) {
				o.Config.Registries = []config.Registry{{Host: "one.example.com", SBOM: one}, {Host: "other.example.com", SBOM: other}}
			})
			web := public("web")
			web.SBOMPolicy = tt.image.Policy()
			if tt.catalog != nil {
				e.must(e.Store.SaveCatalog(t.Context(), store.Catalog{
					Engine: Engine, Key: web.Key, PlatformDigest: platformDigest(web), Packages: 1, Tool: "syft", CatalogedAt: noon, Origin: *tt.catalog,
				}, nil))
			}
			if got := e.index(web); (got == "done") != tt.done {
				t.Fatalf("index says %q, want done: %v", got, tt.done)
			}
			if tt.done {
				return
			}
			job := e.job("catalog")
			if prefers := slices.Contains(job.Spec.Template.Spec.Containers[0].Args, "--prefer-attestation"); prefers != tt.prefers {
				t.Errorf("the Job prefers an attestation: %v, want %v", prefers, tt.prefers)
			}
			record, err := e.Store.JobByUID(t.Context(), string(job.UID))
			e.must(err)
			want := ""
			if tt.prefers {
				want = web.SBOMPolicy
			}
			if record.SBOMPolicy != want {
				t.Errorf("the record has the policy %q, want %q", record.SBOMPolicy, want)
			}
		})
	}
}

// TestWhichJobsReadVEX: a Job reads attached OpenVEX documents if the image's registries have a policy for them, which is recorded.
func TestWhichJobsReadVEX(t *testing.T) {
	for _, policy := range []string{"", "policy"} {
		e := newEngine(t)
		web := public("web")
		web.VEXPolicy = policy
		e.index(web)
		job := e.job("catalog")
		if reads := slices.Contains(job.Spec.Template.Spec.Containers[0].Args, "--attached-vex"); reads != (policy != "") {
			t.Errorf("with the policy %q, the Job reads documents: %v", policy, reads)
		}
		record, err := e.Store.JobByUID(t.Context(), string(job.UID))
		e.must(err)
		if record.VEXPolicy != policy {
			t.Errorf("the record has the policy %q, want %q", record.VEXPolicy, policy)
		}
	}
}
