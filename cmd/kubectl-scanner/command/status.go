package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
)

// scannerState is what "status" shows of a Scanner or ClusterScanner.
type scannerState struct {
	Kind      v1alpha1.ScannerKind `json:"kind"`
	Namespace string               `json:"namespace,omitempty"`
	Name      string               `json:"name"`
	Engine    v1alpha1.BackendType `json:"engine"`
	Suspended bool                 `json:"suspended"`

	Images            v1alpha1.ImageCounts        `json:"images"`
	Findings          v1alpha1.FindingCounts      `json:"findings"`
	VulnerabilityData *v1alpha1.VulnerabilityData `json:"vulnerabilityData,omitempty"`
	Receivers         []v1alpha1.ReceiverStatus   `json:"receivers"`
	Exports           []v1alpha1.ExportStatus     `json:"exports"`
	Conditions        []metav1.Condition          `json:"conditions"`
}

func (s *session) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show what is scanned, with which data, and what is wrong", Args: cobra.NoArgs,
		Long: `Show the Scanners of a namespace and the ClusterScanners: how many images each has scanned, how old its vulnerability data is, and each
condition that needs attention. The command needs only the Kubernetes API.`,
		Example: `  kubectl scanner status -n shop
  kubectl scanner status -A`,
		RunE: func(c *cobra.Command, _ []string) error { return s.status(c.Context()) },
	}
	s.addAllNamespaces(c)
	s.addFormat(c)
	return s.requires(c, own("scanners", "", "list"),
		permission{verbs: []string{"list"}, group: v1alpha1.GroupVersion.Group, resource: "clusterscanners", scope: inCluster, when: "to see ClusterScanners"})
}

func (s *session) status(ctx context.Context) error {
	if _, err := s.checkFormat(); err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	states, forbidden, err := readStates(ctx, cluster, namespace)
	if err != nil {
		return err
	}
	table := output.Table{Columns: []output.Column{
		{Name: "SCANNER"}, {Name: "ENGINE", Wide: true}, {Name: "IMAGES"}, {Name: "SCANNED"}, {Name: "PENDING"}, {Name: "FAILED"}, {Name: "EXCLUDED"},
		{Name: "EXPLOITED"}, {Name: "CRITICAL"}, {Name: "HIGH"}, {Name: "FIXABLE"}, {Name: "SUPPRESSED", Wide: true}, {Name: "DATA AGE"}, {Name: "READY"}, {Name: "TOOL", Wide: true},
	}}
	for _, state := range states {
		table.Rows = append(table.Rows, s.stateCells(state))
	}
	if err := s.write(table, map[string]any{"items": states}); err != nil {
		return err
	}
	if len(states) == 0 {
		s.remark("There is no Scanner %s.", where(namespace))
	}
	if forbidden {
		s.remark("ClusterScanners are not shown: you may not list them.")
	}
	for _, state := range states {
		s.remarkConditions(state)
	}
	return nil
}

// readStates returns the Scanners of a namespace, or of all, and the ClusterScanners. forbidden means that the caller may not list these.
func readStates(ctx context.Context, cluster client.Client, namespace string) (states []scannerState, forbidden bool, err error) {
	var scanners v1alpha1.ScannerList
	var clusterScanners v1alpha1.ClusterScannerList
	err = cluster.List(ctx, &clusterScanners)
	forbidden = apierrors.IsForbidden(err)
	if forbidden {
		err = nil
	}
	if err := errors.Join(err, cluster.List(ctx, &scanners, client.InNamespace(namespace))); err != nil {
		return nil, false, withNamespaceAdvice(err, namespace)
	}
	states = []scannerState{}
	for i := range clusterScanners.Items {
		scanner := &clusterScanners.Items[i]
		states = append(states, stateOf(v1alpha1.KindClusterScanner, scanner, &scanner.Spec.ScanSettings, &scanner.Status.ScannerStatus))
	}
	for i := range scanners.Items {
		scanner := &scanners.Items[i]
		states = append(states, stateOf(v1alpha1.KindScanner, scanner, &scanner.Spec.ScanSettings, &scanner.Status))
	}
	slices.SortFunc(states, func(a, b scannerState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return states, forbidden, nil
}

func stateOf(kind v1alpha1.ScannerKind, o client.Object, settings *v1alpha1.ScanSettings, status *v1alpha1.ScannerStatus) scannerState {
	return scannerState{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Engine: settings.Backend.Type, Suspended: settings.Suspend != nil && *settings.Suspend,
		Images: status.Images, Findings: status.Findings, VulnerabilityData: status.VulnerabilityData,
		Receivers: append([]v1alpha1.ReceiverStatus{}, status.Receivers...), Exports: append([]v1alpha1.ExportStatus{}, status.Exports...),
		Conditions: append([]metav1.Condition{}, status.Conditions...),
	}
}

// title names the object as kubectl does.
func (state scannerState) title() string {
	if state.Kind == v1alpha1.KindClusterScanner {
		return "clusterscanner/" + state.Name
	}
	return state.Namespace + "/" + state.Name
}

func (s *session) stateCells(state scannerState) []string {
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	dataAge, tool := "", ""
	if data := state.VulnerabilityData; data != nil {
		dataAge, tool = age(s.Clock.Since(data.BuildTime.Time)), data.Tool
	}
	ready := "Unknown"
	if condition := meta.FindStatusCondition(state.Conditions, v1alpha1.ConditionReady); condition != nil {
		ready = string(condition.Status)
	}
	images, findings := state.Images, state.Findings
	return []string{
		state.title(), string(state.Engine), number(images.Total), number(images.Scanned), number(images.Pending), number(images.Failed), number(images.Excluded),
		number(findings.KnownExploited), number(findings.Critical), number(findings.High), number(findings.Fixable), number(findings.Suppressed), dataAge, ready, tool,
	}
}

// goodWhenFalse are conditions that are present while something is wrong or in progress.
var goodWhenFalse = []string{
	v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionOverlap, v1alpha1.ConditionNamespacesNotWatched, v1alpha1.ConditionNamespacesUnknown, v1alpha1.ConditionReportsNotWritten,
}

// remarkConditions prints the conditions that need attention.
func (s *session) remarkConditions(state scannerState) {
	if len(state.Conditions) == 0 {
		s.remark("%s: the operator has not reported on it yet. Does it run?", state.title())
	}
	for _, condition := range state.Conditions {
		wanted := metav1.ConditionTrue
		if slices.Contains(goodWhenFalse, condition.Type) {
			wanted = metav1.ConditionFalse
		}
		// Reconciling repeats what Ready says while images have no result yet.
		ready := meta.FindStatusCondition(state.Conditions, v1alpha1.ConditionReady)
		if condition.Type == v1alpha1.ConditionReconciling && ready != nil && ready.Status != metav1.ConditionTrue && ready.Message == condition.Message {
			continue
		}
		if condition.Status != wanted || condition.Reason == v1alpha1.ReasonSomeFailed {
			s.remark("%s: %s=%s (%s): %s", state.title(), condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
}
