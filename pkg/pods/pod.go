// Package pods is the manager's cache of pods. A cluster may have 100,000 of them, so the cache keeps each pod in a compact form: only the
// fields that the operator reads, and what several pods have in common only once. Readers and event handlers get ordinary corev1.Pods, built
// when they are read.
//
// The package does not know which fields the operator reads: its user passes a function that keeps them. It writes nothing to the API.
package pods

import (
	"encoding/hex"
	"strconv"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod in its compact form. It does not change after its creation. It implements as much of an API object as an informer needs.
type Pod struct {
	name            string
	namespace, node unique.Handle[string]
	// uid and version are zero if they do not have the usual form. The remainder then has them.
	uid     [16]byte
	version uint64
	// created is in seconds since 1970, the API's precision; 0 if the pod has no such time.
	created int64
	// remainder is the encoded pod without the fields above. The pods of a Deployment mostly have the same one, which is kept once.
	remainder unique.Handle[string]
}

// newPod returns the compact form of a pod. It takes over the pod, and changes it.
func newPod(pod *corev1.Pod) (*Pod, error) {
	compact := &Pod{name: pod.Name, namespace: unique.Make(pod.Namespace), node: unique.Make(pod.Spec.NodeName)}
	pod.Name, pod.Namespace, pod.Spec.NodeName = "", "", ""
	if uid, ok := parseUID(pod.UID); ok {
		compact.uid, pod.UID = uid, ""
	}
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err == nil && version != 0 && strconv.FormatUint(version, 10) == pod.ResourceVersion {
		compact.version, pod.ResourceVersion = version, ""
	}
	if at := pod.CreationTimestamp.Time; !at.IsZero() && at.Unix() != 0 {
		compact.created, pod.CreationTimestamp = at.Unix(), metav1.Time{}
	}
	remainder, err := pod.Marshal()
	if err != nil {
		return nil, err
	}
	compact.remainder = unique.Make(string(remainder))
	return compact, nil
}

// complete returns the pod. The result shares the lists and maps of remainder, which is the decoded remainder of this pod.
func (p *Pod) complete(remainder *corev1.Pod) *corev1.Pod {
	pod := *remainder
	pod.Name, pod.Namespace, pod.Spec.NodeName = p.name, p.namespace.Value(), p.node.Value()
	if p.uid != [16]byte{} {
		pod.UID = formatUID(p.uid)
	}
	if p.version != 0 {
		pod.ResourceVersion = strconv.FormatUint(p.version, 10)
	}
	if p.created != 0 {
		pod.CreationTimestamp = metav1.NewTime(time.Unix(p.created, 0))
	}
	return &pod
}

// decode returns the decoded remainder.
func (p *Pod) decode() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, pod.Unmarshal([]byte(p.remainder.Value()))
}

// GetObjectMeta returns what an informer reads of an object: the name and the version of a pod, and all metadata of a bookmark, which has no
// name.
func (p *Pod) GetObjectMeta() metav1.Object {
	if p.name == "" || p.version == 0 {
		if remainder, err := p.decode(); err == nil {
			return &p.complete(remainder).ObjectMeta
		}
	}
	return &metav1.ObjectMeta{Name: p.name, Namespace: p.namespace.Value(), ResourceVersion: strconv.FormatUint(p.version, 10)}
}

// GetObjectKind implements runtime.Object.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. A Pod does not change, so that it is its own copy.
func (p *Pod) DeepCopyObject() runtime.Object { return p }

// list is a list of compact pods.
type list struct {
	metav1.ListMeta
	Items []*Pod
}

// GetObjectKind implements runtime.Object.
func (l *list) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. The pods do not change.
func (l *list) DeepCopyObject() runtime.Object {
	return &list{ListMeta: *l.ListMeta.DeepCopy(), Items: append([]*Pod(nil), l.Items...)}
}

// hyphens are the positions of the hyphens in a UUID.
var hyphens = [...]int{8, 13, 18, 23}

// parseUID returns the bytes of a UUID in the form that the API server writes. ok is false for any other text.
func parseUID(text types.UID) (uid [16]byte, ok bool) {
	if len(text) != 36 {
		return uid, false
	}
	digits := make([]byte, 0, 32)
	digits = append(digits, text[:8]...)
	digits = append(append(digits, text[9:13]...), text[14:18]...)
	digits = append(append(digits, text[19:23]...), text[24:]...)
	if _, err := hex.Decode(uid[:], digits); err != nil || uid == [16]byte{} || formatUID(uid) != text {
		return [16]byte{}, false
	}
	return uid, true
}

// formatUID is the inverse of parseUID.
func formatUID(uid [16]byte) types.UID {
	digits := hex.AppendEncode(make([]byte, 0, 36), uid[:])[:36]
	for i, at := range hyphens {
		copy(digits[at+1:], digits[at:32+i])
		digits[at] = '-'
	}
	return types.UID(digits)
}
