package export

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// State is what the store keeps of an export as a whole.
type State struct {
	// Workloads are those whose present findings or SBOMs the tool has. Pending are those that wait to be sent. Waiting are those with an image
	// that has no result yet, or lacks what the tool gets. Omitted are those above MaxWorkloads, which are not exported.
	Workloads int `json:"workloads,omitempty"`
	Pending   int `json:"pending,omitempty"`
	Waiting   int `json:"waiting,omitempty"`
	Omitted   int `json:"omitted,omitempty"`
	// Lacking are those of the waiting workloads with an image that was cataloged without an SBOM as CycloneDX, and LackingName is one of them.
	Lacking     int    `json:"lacking,omitempty"`
	LackingName string `json:"lackingName,omitempty"`
	// Importing names the workload whose documents the tool is still importing, beyond the time in which a tool usually answers; empty if there is none.
	Importing string `json:"importing,omitempty"`
	// Unnamed means that nothing is sent because the cluster has no name.
	Unnamed bool `json:"unnamed,omitempty"`
	// LastSuccess is when the tool last accepted findings.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// NextAttempt is the earliest time of the next attempt; zero if there is nothing to wait for.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Failures is the number of failed attempts in a row. A rate limited attempt is no failure.
	Failures int `json:"failures,omitempty"`
	// Generation is the Scanner's at the last run. A new one ends the wait for NextAttempt.
	Generation int64 `json:"generation,omitempty"`
	// LastError describes the last attempt if it failed; nil after a success.
	LastError *announce.DeliveryError `json:"lastError,omitempty"`
}

// Problem describes what is wrong with the export: one word, and a text for people of at most announce.MaxMessageBytes. Both are empty if nothing is.
func (s State) Problem() (reason, message string) {
	switch {
	case s.Unnamed:
		return ReasonClusterNameMissing, "the tool needs a name for this cluster: set engagement (defectDojo) or projectVersion (dependencyTrack) of the export, or " +
			"clusterName in the operator's configuration"
	case s.LastError != nil:
		return s.LastError.Reason, text.Truncate(s.LastError.Message, announce.MaxMessageBytes)
	case s.Lacking > 0:
		return ReasonFormatNotStored, fmt.Sprintf("%s, such as %s: an image was cataloged without an SBOM as CycloneDX. The operator's configuration must name "+
			"cyclonedx-json in grype.catalog.additionalFormats. Then have the images scanned again (docs/integrate/sboms.md)",
			announce.Pluralize(s.Lacking, "workload"), s.LackingName)
	case s.Omitted > 0:
		return ReasonTooManyWorkloads, fmt.Sprintf("%s are not exported: an export has at most %d. Use a Scanner for each namespace, or one ClusterScanner for each group of namespaces",
			announce.Pluralize(s.Omitted, "workload"), MaxWorkloads)
	}
	return "", ""
}

// Reasons of problems, in addition to those of announce.Outcome.
const (
	ReasonTooManyWorkloads   = "TooManyWorkloads"
	ReasonTooManyFindings    = "TooManyFindings"    // a workload has more findings than the operator reads at once
	ReasonSBOMNotSent        = "SBOMNotSent"        // an SBOM is damaged, or has more than MaxDocumentBytes or MaxSBOMBytes
	ReasonFormatNotStored    = "FormatNotStored"    // an image was cataloged without an SBOM as CycloneDX
	ReasonClusterNameMissing = "ClusterNameMissing" // neither the export nor the configuration names the cluster
)

// ParseState decodes a stored state. Empty data gives the zero State.
func ParseState(data []byte) (State, error) { return parse[State](data) }

// item is what the store keeps of a workload.
type item struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Version identifies what was sent last of the workload, by where it comes from; empty if not all of it was.
	Version string `json:"version,omitempty"`
	// Documents are those that the tool has or may have, by name.
	Documents map[string]sent `json:"documents,omitempty"`
	// Sources are the announced sources whose findings the tool may have.
	Sources []string `json:"sources,omitempty"`
	// Failed is the name of the document whose attempt failed last.
	Failed string `json:"failed,omitempty"`
	// Attempted is when something was last sent, with or without success.
	Attempted time.Time `json:"attempted,omitzero"`
	// MissingSince is since when the workload is not there; zero while it is.
	MissingSince time.Time `json:"missingSince,omitzero"`
}

// sent is a document that a tool has accepted, or may have accepted.
type sent struct {
	Project Project `json:"project"`
	// Content identifies what was sent, and where to; empty if that is not known.
	Content string `json:"content"`
	// Since is when an import began whose outcome is not known; zero if there is none.
	Since time.Time `json:"since,omitzero"`
}

// mayRunFor returns how long the import whose outcome is not known may still run, at most for a timeout.
func (s sent) mayRunFor(now time.Time, timeout time.Duration) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return min(max(s.Since.Add(timeout).Sub(now), 0), timeout)
}

func parse[T any](data []byte) (value T, err error) {
	if len(data) == 0 {
		return value, nil
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("stored state of an export: %w", err)
	}
	return value, nil
}
