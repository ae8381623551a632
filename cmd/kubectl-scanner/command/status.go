package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

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

	columns v1alpha1.ScannerColumns
}

func (s *session) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show what is scanned, with which data, and what is wrong", Args: cobra.NoArgs,
		Long: `Show the Scanners of a namespace and the ClusterScanners: how many images each has scanned, whether messages arrive, how old its vulnerability
data is, and each condition that needs attention. The command needs only the Kubernetes API.`,
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
		{Name: "SCANNER"}, {Name: "ENGINE", Wide: true}, {Name: "IMAGES", Measured: true}, {Name: "SCANNED", Measured: true}, {Name: "PENDING", Measured: true},
		{Name: "FAILED", Measured: true}, {Name: "EXCLUDED", Measured: true}, {Name: "EXPLOITED", Measured: true}, {Name: "CRITICAL", Measured: true},
		{Name: "HIGH", Measured: true}, {Name: "FIXABLE", Measured: true}, {Name: "SUPPRESSED", Wide: true, Measured: true}, {Name: "MESSAGES", Measured: true},
		{Name: "DATA AGE", Measured: true}, {Name: "READY"}, {Name: "TOOL", Wide: true, Measured: true},
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
		Conditions: append([]metav1.Condition{}, status.Conditions...), columns: status.Columns,
	}
}

// title names the object as kubectl does.
func (state scannerState) title() string {
	if state.Kind == v1alpha1.KindClusterScanner {
		return "clusterscanner/" + state.Name
	}
	return state.Namespace + "/" + state.Name
}

// stateCells returns the cells of a line of the table; those of what is not known are empty. What the operator has not read yet is 0 in the status,
// and unknown in its columns.
func (s *session) stateCells(state scannerState) []string {
	dataAge, tool := "", ""
	if data := state.VulnerabilityData; data != nil && !data.BuildTime.IsZero() {
		dataAge, tool = age(max(0, s.Clock.Since(data.BuildTime.Time))), data.Tool
	}
	ready := "Unknown"
	if condition := meta.FindStatusCondition(state.Conditions, v1alpha1.ConditionReady); condition != nil {
		ready = string(condition.Status)
	}
	images, findings := state.Images, state.Findings
	return slices.Concat(
		[]string{state.title(), string(state.Engine)},
		numbersIf(isKnown(state.columns.Images), images.Total, images.Scanned, images.Pending, images.Failed, images.Excluded),
		numbersIf(isKnown(state.columns.Critical), findings.KnownExploited, findings.Critical, findings.High, findings.Fixable, findings.Suppressed),
		[]string{strings.TrimPrefix(state.columns.Messages, v1alpha1.ColumnUnknown), dataAge, ready, tool},
	)
}

func isKnown(column string) bool { return column != "" && column != v1alpha1.ColumnUnknown }

// numbersIf returns numbers as cells, which are empty unless the numbers are known.
func numbersIf(known bool, numbers ...int32) []string {
	cells := make([]string, len(numbers))
	for i, n := range numbers {
		if known {
			cells[i] = strconv.Itoa(int(n))
		}
	}
	return cells
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
