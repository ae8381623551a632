package ingest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var (
	startServer sync.Once
	apiServer   *envtest.Environment
	apiClient   client.Client
	serverErr   error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if apiServer != nil {
		if err := apiServer.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// newIngestAPIWithCluster returns the ingest API with a real API server, real tokens and real pods.
func newIngestAPIWithCluster(t *testing.T) *ingestAPI {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	startServer.Do(func() {
		apiServer = &envtest.Environment{}
		config, err := apiServer.Start()
		if err == nil {
			config.QPS = -1
			apiClient, err = client.New(config, client.Options{})
		}
		serverErr = err
	})
	if serverErr != nil {
		t.Fatalf("starting the API server: %v", serverErr)
	}
	a := newIngestAPI(t, Limits{Catalog: 1 << 20, SBOMContent: 1 << 20, MatchInputContent: 1 << 20, JSON: 1 << 10})
	a.ingest.Client, a.ingest.Reader = apiClient, apiClient
	handler, err := a.ingest.Handler()
	a.must(err)
	a.serve(handler)
	return a
}

// realPod creates a pod with an owner reference to a Job, and the namespace and ServiceAccount that it needs.
func (a *ingestAPI) realPod(namespace, name, job string) *corev1.Pod {
	a.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "x", UID: types.UID(job), Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "worker", Image: "worker"}}},
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}},
		pod,
	} {
		if err := apiClient.Create(a.t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			a.t.Fatal(err)
		}
	}
	return pod
}

// tokenOf requests a token as the kubelet does; pod is nil for an unbound token.
func (a *ingestAPI) tokenOf(namespace, audience string, pod *corev1.Pod) string {
	a.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{audience}, ExpirationSeconds: ptr.To[int64](600),
	}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	a.must(apiClient.SubResource("token").Create(a.t.Context(), account, request))
	return request.Status.Token
}

// signed returns a token with changed claims, signed by a key with ES256 (https://datatracker.ietf.org/doc/html/rfc7518#section-3.4).
func (a *ingestAPI) signed(token string, key *ecdsa.PrivateKey, change func(claims map[string]any)) string {
	a.t.Helper()
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	a.must(err)
	var claims map[string]any
	a.must(json.Unmarshal(payload, &claims))
	change(claims)
	payload, err = json.Marshal(claims)
	a.must(err)
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	a.must(err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// serverKey returns the key with which envtest's API server signs tokens.
func (a *ingestAPI) serverKey() *ecdsa.PrivateKey {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(apiServer.ControlPlane.APIServer.CertDir, "sa-signer.key"))
	a.must(err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	a.must(err)
	return key.(*ecdsa.PrivateKey)
}

// TestUploadsWithRealTokens: uploads are accepted or refused according to a real API server's token reviews.
func TestUploadsWithRealTokens(t *testing.T) {
	const tenant, jobUID = "shop", "uid-of-job"
	unchanged := func(map[string]any) {}
	for name, tt := range map[string]struct {
		// token returns a token for the Job's pod, requested before the pod is changed.
		token  func(a *ingestAPI, pod *corev1.Pod) string
		status int
		text   string
	}{
		"the token of the Job's pod": {func(a *ingestAPI, pod *corev1.Pod) string {
			return a.tokenOf(tenant, workerapi.Audience, pod)
		}, http.StatusNoContent, ""},
		"the same claims, signed by the API server's key": { // proves that the next two tokens are not refused for another reason
			func(a *ingestAPI, pod *corev1.Pod) string {
				return a.signed(a.tokenOf(tenant, workerapi.Audience, pod), a.serverKey(), unchanged)
			}, http.StatusNoContent, "",
		},
		"a forged token": {func(a *ingestAPI, pod *corev1.Pod) string {
			own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			a.must(err)
			return a.signed(a.tokenOf(tenant, workerapi.Audience, pod), own, unchanged)
		}, http.StatusUnauthorized, "the token is not valid here"},
		"an expired token": {func(a *ingestAPI, pod *corev1.Pod) string {
			return a.signed(a.tokenOf(tenant, workerapi.Audience, pod), a.serverKey(), func(claims map[string]any) {
				past := time.Now().Add(-time.Hour).Unix()
				claims["iat"], claims["nbf"], claims["exp"] = past-600, past-600, past
			})
		}, http.StatusUnauthorized, "the token is not valid here"},
		"a foreign token, for another audience": {func(a *ingestAPI, pod *corev1.Pod) string {
			return a.tokenOf(tenant, "vault", pod)
		}, http.StatusUnauthorized, "the token is not valid here"},
		"a foreign token, of the tenant's ServiceAccount": {func(a *ingestAPI, _ *corev1.Pod) string {
			return a.tokenOf(tenant, workerapi.Audience, nil)
		}, http.StatusForbidden, "bound to no pod"},
		"a foreign token, of a pod without a Job of ours": {func(a *ingestAPI, _ *corev1.Pod) string {
			return a.tokenOf(tenant, workerapi.Audience, a.realPod(tenant, "foreign", "uid-of-another-job"))
		}, http.StatusForbidden, "not one that the operator made"},
		"the token of a pod that only says it is ours, elsewhere": {func(a *ingestAPI, _ *corev1.Pod) string {
			return a.tokenOf("elsewhere", workerapi.Audience, a.realPod("elsewhere", "lookalike", jobUID))
		}, http.StatusForbidden, "this Job may not do that"},
		"the token of a pod that only says it is ours, beside the real one": {func(a *ingestAPI, pod *corev1.Pod) string {
			_, err := a.store.ClaimJob(a.t.Context(), jobUID, string(pod.UID))
			a.must(err)
			return a.tokenOf(tenant, workerapi.Audience, a.realPod(tenant, "lookalike", jobUID))
		}, http.StatusForbidden, "another pod speaks for this Job"},
		"a replayed token, after the Job has ended": {func(a *ingestAPI, pod *corev1.Pod) string {
			a.must(a.store.EndJob(a.t.Context(), tenant, "job", noon, false))
			return a.tokenOf(tenant, workerapi.Audience, pod)
		}, http.StatusForbidden, "has ended"},
		"a replayed token, after its pod was deleted": {func(a *ingestAPI, pod *corev1.Pod) string {
			token := a.tokenOf(tenant, workerapi.Audience, pod)
			a.must(apiClient.Delete(a.t.Context(), pod, client.GracePeriodSeconds(0)))
			return token
		}, http.StatusUnauthorized, "the token is not valid here"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPIWithCluster(t)
			a.must(a.store.SaveJob(t.Context(), store.Job{
				Namespace: tenant, Name: "job", UID: jobUID, Purpose: store.JobCatalog, Key: web, Scope: tenant, CreatedAt: noon, Worker: workerImage,
			}))
			pod := a.realPod(tenant, "worker", jobUID)
			t.Cleanup(func() { a.cleanPods(tenant, "elsewhere") })
			w := &worker{api: a, pod: pod, token: tt.token(a, pod)}
			w.want(w.uploadResult(newCatalogUpload(t)), tt.status, tt.text)
			_, err := a.store.Catalog(t.Context(), "grype", web, tenant)
			if taken := err == nil; taken != (tt.status == http.StatusNoContent) {
				t.Errorf("the SBOM was taken: %v (%v)", taken, err)
			}
		})
	}
}

// cleanPods deletes the pods that the next test would find, after the test's context has ended. Without a kubelet, the deletion needs no
// grace period.
func (a *ingestAPI) cleanPods(namespaces ...string) {
	for _, namespace := range namespaces {
		a.must(apiClient.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	}
}
