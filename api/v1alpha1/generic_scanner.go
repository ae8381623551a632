package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ScannerKind is the kind of a GenericScanner.
// +kubebuilder:validation:Enum=Scanner;ClusterScanner
type ScannerKind string

// Kinds of GenericScanners.
const (
	KindScanner        ScannerKind = "Scanner"
	KindClusterScanner ScannerKind = "ClusterScanner"
)

// GenericScanner is a Scanner or a ClusterScanner. The methods return parts of the object, not copies.
// +kubebuilder:object:generate=false
type GenericScanner interface {
	metav1.Object
	runtime.Object
	// ScannerKind returns the kind. Unlike the type's metadata, it is never empty.
	ScannerKind() ScannerKind
	// Settings returns the part of the spec that both kinds have.
	Settings() *ScanSettings
	// Receivers returns the receivers. Those of a Scanner have only the fields that a Scanner has.
	Receivers() []ClusterReceiver
	// ScannerStatus returns the part of the status that both kinds have.
	ScannerStatus() *ScannerStatus
}

var (
	_ GenericScanner = &Scanner{}
	_ GenericScanner = &ClusterScanner{}
)

// ScannerKind implements GenericScanner.
func (s *Scanner) ScannerKind() ScannerKind { return KindScanner }

// Settings implements GenericScanner.
func (s *Scanner) Settings() *ScanSettings { return &s.Spec.ScanSettings }

// Receivers implements GenericScanner.
func (s *Scanner) Receivers() []ClusterReceiver {
	receivers := make([]ClusterReceiver, len(s.Spec.Notifications))
	for i, receiver := range s.Spec.Notifications {
		receivers[i].Receiver = receiver
	}
	return receivers
}

// ScannerStatus implements GenericScanner.
func (s *Scanner) ScannerStatus() *ScannerStatus { return &s.Status }

// ScannerKind implements GenericScanner.
func (s *ClusterScanner) ScannerKind() ScannerKind { return KindClusterScanner }

// Settings implements GenericScanner.
func (s *ClusterScanner) Settings() *ScanSettings { return &s.Spec.ScanSettings }

// Receivers implements GenericScanner.
func (s *ClusterScanner) Receivers() []ClusterReceiver { return s.Spec.Notifications }

// ScannerStatus implements GenericScanner.
func (s *ClusterScanner) ScannerStatus() *ScannerStatus { return &s.Status.ScannerStatus }

// IsStale reports whether the results of a scanner may lack what became known of late: it is suspended or stalled, its engine does not work, or its
// vulnerability data is outdated or in an anomaly. A scanner whose engine was not asked yet is new, and not stale.
func IsStale(s GenericScanner) bool {
	conditions, suspend := s.ScannerStatus().Conditions, s.Settings().Suspend
	engine := meta.FindStatusCondition(conditions, ConditionBackendAvailable)
	return suspend != nil && *suspend || meta.IsStatusConditionTrue(conditions, ConditionStalled) ||
		engine != nil && (engine.Status != metav1.ConditionTrue || engine.Reason != ReasonAvailable)
}

// AnnouncedSources returns the sources of external reports whose findings count and are announced.
func (s *ScanSettings) AnnouncedSources() (sources []string) {
	for _, source := range s.ExternalReports.Sources {
		if source.Announce != nil && *source.Announce {
			sources = append(sources, source.Name)
		}
	}
	return sources
}
