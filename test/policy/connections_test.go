package policy

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// end is one end of a connection: a pod, or an address outside the cluster.
type end struct {
	namespace string
	labels    map[string]string
	// ports are the pod's named ports.
	ports   []corev1.ContainerPort
	address string
}

// network evaluates NetworkPolicies as a network plugin does, by the rules of
// https://kubernetes.io/docs/concepts/services-networking/network-policies/
type network []networkingv1.NetworkPolicy

func networkOf(t *testing.T, objects []unstructured.Unstructured) network {
	t.Helper()
	var policies network
	for _, object := range objects {
		if object.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &policy, true); err != nil {
			t.Fatal(err)
		}
		policies = append(policies, policy)
	}
	return policies
}

// allows reports whether the policies of both ends allow a connection. A pod that no policy selects may connect freely.
func (n network) allows(t *testing.T, from, to end, port networkingv1.NetworkPolicyPort) bool {
	t.Helper()
	leaves, enters := true, true
	for _, policy := range n {
		if selected(t, &policy.Spec.PodSelector, from.labels) && from.namespace == policy.Namespace && slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			leaves = slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return onPort(rule.Ports, port, to) && matchesPeer(t, rule.To, policy.Namespace, to)
			})
		}
		if selected(t, &policy.Spec.PodSelector, to.labels) && to.namespace == policy.Namespace && slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			enters = slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return onPort(rule.Ports, port, to) && matchesPeer(t, rule.From, policy.Namespace, from)
			})
		}
	}
	return leaves && enters
}

func selected(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return matches.Matches(labels.Set(set))
}

func matchesPeer(t *testing.T, peers []networkingv1.NetworkPolicyPeer, home string, other end) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return other.address != "" && within(peer.IPBlock, other.address)
		}
		if other.address != "" {
			return false
		}
		namespace := map[string]string{corev1.LabelMetadataName: other.namespace}
		inNamespace := peer.NamespaceSelector == nil && other.namespace == home || peer.NamespaceSelector != nil && selected(t, peer.NamespaceSelector, namespace)
		return inNamespace && (peer.PodSelector == nil || selected(t, peer.PodSelector, other.labels))
	})
}

func within(block *networkingv1.IPBlock, address string) bool {
	holds := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(address)) }
	return holds(block.CIDR) && !slices.ContainsFunc(block.Except, holds)
}

// onPort compares ports by number. A port name in a rule is that of the pod at the other end.
func onPort(allowed []networkingv1.NetworkPolicyPort, asked networkingv1.NetworkPolicyPort, to end) bool {
	return slices.ContainsFunc(allowed, func(rule networkingv1.NetworkPolicyPort) bool {
		number := rule.Port.IntVal
		for _, port := range to.ports {
			if rule.Port.StrVal != "" && port.Name == rule.Port.StrVal {
				number = port.ContainerPort
			}
		}
		return *rule.Protocol == *asked.Protocol && number == asked.Port.IntVal
	})
}
