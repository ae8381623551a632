package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Placement decides which nodes run the Jobs of one kind in the operator's namespace, by fields that a pod has, too. Default: any node with Linux.
type Placement struct {
	// NodeSelector limits the nodes by label. Without the label kubernetes.io/os, that is linux.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// NodeAffinity limits the nodes, or prefers some of them.
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// Tolerations of the pods.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName of the pods.
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// validate adds an error for each field that the API server would refuse in a Job.
func (p Placement) validate(errs *fieldErrors, path string) {
	for key, value := range p.NodeSelector {
		field := fmt.Sprintf("%s.nodeSelector[%s]", path, key)
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		errs.check(len(problems) == 0, field, "%s", strings.Join(problems, "; "))
	}
	if p.NodeAffinity != nil {
		validateNodeAffinity(errs, path+".nodeAffinity", *p.NodeAffinity)
	}
	for i, toleration := range p.Tolerations {
		validateToleration(errs, fmt.Sprintf("%s.tolerations[%d]", path, i), toleration)
	}
	problems := validation.IsDNS1123Subdomain(p.PriorityClassName)
	errs.check(p.PriorityClassName == "" || len(problems) == 0, path+".priorityClassName", "%s", strings.Join(problems, "; "))
}

func validateToleration(errs *fieldErrors, field string, t corev1.Toleration) {
	problems := slices.Concat(validation.IsQualifiedName(cmp.Or(t.Key, "any")), validation.IsValidLabelValue(t.Value))
	errs.check(len(problems) == 0, field, "%s", strings.Join(problems, "; "))
	operators := []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists}
	errs.check(slices.Contains(operators, t.Operator), field+".operator", "%q must be Equal or Exists", t.Operator)
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	errs.check(slices.Contains(effects, t.Effect), field+".effect", "%q must be NoSchedule, PreferNoSchedule or NoExecute", t.Effect)
	errs.check(t.Key != "" || t.Operator == corev1.TolerationOpExists, field+".key", "must be set, unless the operator is Exists")
	errs.check(t.Operator != corev1.TolerationOpExists || t.Value == "", field+".value", "must be empty with the operator Exists")
	errs.check(t.TolerationSeconds == nil || t.Effect == corev1.TaintEffectNoExecute, field+".tolerationSeconds", "needs the effect NoExecute")
}

func validateNodeAffinity(errs *fieldErrors, field string, affinity corev1.NodeAffinity) {
	terms := map[string]corev1.NodeSelectorTerm{}
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		name := field + ".requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
		errs.check(len(required.NodeSelectorTerms) > 0, name, "must have a term")
		for i, term := range required.NodeSelectorTerms {
			terms[fmt.Sprintf("%s[%d]", name, i)] = term
		}
	}
	for i, preferred := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		name := fmt.Sprintf("%s.preferredDuringSchedulingIgnoredDuringExecution[%d]", field, i)
		errs.check(preferred.Weight >= 1 && preferred.Weight <= 100, name+".weight", "must be between 1 and 100")
		terms[name+".preference"] = preferred.Preference
	}
	for name, term := range terms {
		for i, expression := range term.MatchExpressions {
			field := fmt.Sprintf("%s.matchExpressions[%d]", name, i)
			operator, known := requirementOperators[expression.Operator]
			errs.check(known, field+".operator", "%q must be In, NotIn, Exists, DoesNotExist, Gt or Lt", expression.Operator)
			if known {
				_, err := labels.NewRequirement(expression.Key, operator, expression.Values)
				errs.check(err == nil, field, "%v", err)
			}
		}
		for i, named := range term.MatchFields {
			isOne := named.Operator == corev1.NodeSelectorOpIn || named.Operator == corev1.NodeSelectorOpNotIn
			errs.check(named.Key == metav1.ObjectNameField && isOne && len(named.Values) == 1, fmt.Sprintf("%s.matchFields[%d]", name, i),
				"must have the key metadata.name, the operator In or NotIn, and one value")
		}
	}
}

// requirementOperators are the operators of a label selector by those of a node selector.
var requirementOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}
