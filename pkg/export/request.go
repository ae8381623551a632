package export

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Request asks the notifier to send a document to a tool. It references the Secret with the tool's address and token, and never holds its content.
type Request struct {
	// Receiver has one of the types of this package. Its key is that of the address.
	Receiver announce.ReceiverRef `json:"receiver"`
	// Scanner is the namespace and the name of the Scanner, or the name of the ClusterScanner.
	Scanner string  `json:"scanner"`
	Project Project `json:"project"`
	// Document is the content in the tool's format, of at most MaxDocumentBytes. For a DefectDojo it is JSON, for a
	// Dependency-Track it is JSON that is compressed with zstd, of at most MaxSBOMBytes before.
	Document []byte `json:"document"`
	// KeepOld means that findings which the document lacks stay open in a DefectDojo: their absence is not proven.
	KeepOld bool `json:"keepOld,omitempty"`
	// MayRunFor is how long an earlier import into the project, whose outcome is not known to the manager, may still run; 0 if there is none. A notifier
	// that does not know of it, since it was restarted, starts no other one until then.
	MayRunFor time.Duration `json:"mayRunFor,omitempty"`
}

// Project is where a tool keeps one document about a workload. The field of the tool's type is set. Each text has at most maxNameBytes.
type Project struct {
	DefectDojo      DefectDojoTest         `json:"defectDojo,omitzero"`
	DependencyTrack DependencyTrackProject `json:"dependencyTrack,omitzero"`
}

// DefectDojoTest is a test in a DefectDojo.
type DefectDojoTest struct {
	// ProductType is that of a product that does not exist yet.
	ProductType string `json:"productType"`
	// Product is the namespace, Engagement the cluster, and Test the workload.
	Product    string `json:"product"`
	Engagement string `json:"engagement"`
	Test       string `json:"test"`
}

// DependencyTrackProject is a project in a Dependency-Track.
type DependencyTrackProject struct {
	// Name is that of the workload's container, and Version the cluster.
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Label names the project in a log; it is empty if the project has not all names that a type of tool needs.
func (p Project) Label(tool string) string {
	if d := p.DefectDojo; tool == TypeDefectDojo && d.ProductType != "" && d.Product != "" && d.Engagement != "" && d.Test != "" {
		return d.Product + "/" + d.Test
	}
	if tool == TypeDependencyTrack && p.DependencyTrack.Version != "" {
		return p.DependencyTrack.Name
	}
	return ""
}

// Types of receivers that are tools.
const (
	TypeDefectDojo      = "defectDojo"
	TypeDependencyTrack = "dependencyTrack"
)

// IsTool reports whether a type of receivers is one of tools.
func IsTool(receiverType string) bool { return tools[receiverType] != nil }

// Path is the notifier's endpoint for a Request as JSON, with POST. Answers and headers are those of announce.DeliveryPath. A Request has no ID:
// it may be sent again, since a tool that gets the same document twice has the same findings. While a tool imports the document, the answer is
// announce.ReasonInProgress. The same request again then has its outcome.
const Path = "/v1/exports"

// NamespaceHeader is the header of a Request with the namespace of its receiver: the notifier shares its capacity between namespaces before it reads
// the document.
const NamespaceHeader = "Scanner-Operator-Namespace"

// ReasonBusy is the reason of an export that has to wait for another one. The tool itself requests no wait.
const ReasonBusy = "ExportBusy"

// WasTried reports whether the notifier has tried an export. Otherwise nothing was begun, and the outcome says nothing about an earlier import, which may
// still run. The notifier tries an export only when no earlier import into its project runs.
func WasTried(o announce.Outcome) bool {
	return o.Reason != announce.ReasonNotifierUnavail && o.Reason != announce.ReasonDeposed && o.Reason != ReasonBusy
}

// Bounds of requests.
const (
	// MaxDocumentBytes bounds a document, and MaxRequestBytes the body of a Request.
	MaxDocumentBytes = 4 << 20
	MaxRequestBytes  = (MaxDocumentBytes+2)/3*4 + 64<<10 // a document is base64
	// MaxSBOMBytes bounds a document for a Dependency-Track before compression.
	MaxSBOMBytes = 64 << 20
	// DefectDojoTimeout and DependencyTrackTimeout bound a request to a tool. DefectDojo answers when it has imported all findings.
	DefectDojoTimeout      = 10 * time.Minute
	DependencyTrackTimeout = 2 * time.Minute
)
