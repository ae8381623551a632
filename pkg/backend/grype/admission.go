package grype

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of what is read from events. Everyone with write access to the namespace can write events.
const (
	maxEvents  = 50
	maxQuoted  = 303 // bytes, with the ellipsis
	involvedID = "involvedObject.uid"
)

// webhookFailed begins the API server's error about an admission webhook that failed and may not be skipped (k8s.io/apiserver,
// pkg/util/webhook/error.go: ErrCallingWebhook).
const webhookFailed = "failed calling webhook"

// missingAccount is in the API server's error about a pod whose ServiceAccount does not exist (k8s.io/kubernetes,
// plugin/pkg/admission/serviceaccount/admission.go).
const missingAccount = "error looking up service account "

// missingPriority is in the API server's error about a pod whose PriorityClass does not exist (k8s.io/kubernetes,
// plugin/pkg/admission/priority/admission.go).
const missingPriority = "no PriorityClass with name "

// rejections maps phrases of API server errors to reasons. The first match counts. Sources: k8s.io/apiserver,
// plugin/resourcequota/controller.go; k8s.io/kubernetes, plugin/pkg/admission/limitranger/admission.go; k8s.io/pod-security-admission,
// admission/admission.go; k8s.io/apiserver, plugin/webhook/errors/statuserror.go and plugin/policy/validating/dispatcher.go.
var rejections = []struct{ words, reason string }{
	{missingAccount, backend.ReasonAccountMissing},
	{"exceeded quota: ", backend.ReasonResourceQuota},
	{"failed quota: ", backend.ReasonResourceQuota},
	{"status unknown for quota: ", backend.ReasonResourceQuota},
	{"violates PodSecurity", backend.ReasonPodSecurity},
	{"denied the request", backend.ReasonPolicyDenied},
	{"denied request", backend.ReasonPolicyDenied},
	{webhookFailed, backend.ReasonPolicyUnavailable},
	{" usage per Container is ", backend.ReasonLimitRange},
	{" usage per Pod is ", backend.ReasonLimitRange},
	{" max limit to request ratio per ", backend.ReasonLimitRange},
}

// ownPolicyPrefix is how API server errors name the policies of config/policy, which allow only what the manager creates. A Job that they deny
// is a fault of the installation: an exception in the policy would not help.
const ownPolicyPrefix = "ValidatingAdmissionPolicy 'scanner-operator-manager-"

// rejectionFailure returns the failure for an API server error: who rejected the Job or its pod, and what to do. otherwise and what are the reason
// and message of an unknown error. The API server's text comes last because it may be long.
func (b *Backend) rejectionFailure(record store.Job, otherwise, what, answer string) *backend.Failure {
	if _, own, found := strings.Cut(answer, ownPolicyPrefix); found {
		_, words, _ := strings.Cut(own, "denied request: ")
		return &backend.Failure{Reason: backend.ReasonJobRejected, Message: "the operator's own policy does not know the Job: either something changes it, " +
			"or the policy and RELATED_IMAGE_WORKER of the manager differ (see docs/understand/security-policies.md): " + quoteLine(words)}
	}
	reason := otherwise
	if strings.Contains(answer, missingPriority) {
		what = "the PriorityClass of the Job does not exist: create it, or change priorityClassName in spec.backend.grype.job of the Scanner; of Jobs in the operator's " +
			"namespace, in grype.catalog or grype.match of the operator's configuration"
	}
	for _, r := range rejections {
		if strings.Contains(answer, r.words) {
			reason = r.reason
			break
		}
	}
	switch reason {
	case backend.ReasonAccountMissing:
		what = fmt.Sprintf("the namespace has no ServiceAccount %s, whose cloud identity pulls the image: create it there (see docs/operate/cloud-registries.md)",
			workerapi.CatalogServiceAccount)
	case backend.ReasonResourceQuota:
		what = "the namespace's ResourceQuota has no room: raise it, or lower " + b.settingName(record, "resources")
	case backend.ReasonLimitRange:
		what = "the namespace's LimitRange does not allow the Job's resources: change it, or " + b.settingName(record, "resources")
	case backend.ReasonPodSecurity:
		what = "the namespace's pod security level does not allow the worker's pod, which itself is of the restricted level: something is added to it"
	case backend.ReasonPolicyDenied:
		what = "a policy does not allow the Job: make an exception for it"
	case backend.ReasonPolicyUnavailable:
		what = "an admission webhook of the cluster does not answer, and nothing is made without it: see to the service behind it"
	}
	return &backend.Failure{Reason: reason, Message: what + ": " + quoteLine(answer)}
}

// quoteLine returns a foreign text as one line of at most maxQuoted bytes.
func quoteLine(foreign string) string {
	return text.Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(foreign, "?")), " "), maxQuoted)
}

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// explainNoPod returns why a Job has no pod, according to the latest FailedCreate event of the Job controller.
func (b *Backend) explainNoPod(ctx context.Context, record store.Job) (*backend.Failure, error) {
	var events corev1.EventList
	err := b.Reader.List(ctx, &events, client.InNamespace(record.Namespace), client.MatchingFields{involvedID: record.UID}, client.Limit(maxEvents))
	if err != nil {
		return nil, err
	}
	var last *corev1.Event
	for i := range events.Items {
		event := &events.Items[i]
		if event.Reason == "FailedCreate" && (last == nil || last.LastTimestamp.Before(&event.LastTimestamp)) {
			last = event
		}
	}
	if last == nil {
		return &backend.Failure{Reason: backend.ReasonNoPod, Message: "no pod was made for the Job, and no event says why (does the Job controller run, is the Job suspended?)"}, nil
	}
	return b.rejectionFailure(record, backend.ReasonNoPod, "no pod can be made for the Job", last.Message), nil
}
