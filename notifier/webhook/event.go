package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// EventType is the type of all events. A version that readers of this one cannot read has another type.
const EventType = "io.scanner-operator.changes.v1"

// kindChanges is Data.Kind of announce.KindChanges. The other kinds have the same names.
const kindChanges = "Changes"

// Data is the data of an event of EventType. docs/use/changes.v1.schema.json describes it: a field of this version is neither removed nor renamed,
// also in the types of package announce, and fields may be added.
type Data struct {
	// Kind is Changes, or the kind of a summary.
	Kind string `json:"kind"`
	// Title is the message's subject, in one line.
	Title string `json:"title"`
	// Cluster is the name of the cluster; empty if it has none.
	Cluster string  `json:"cluster,omitempty"`
	Scanner Scanner `json:"scanner"`

	// The other fields are as in announce.Message.

	OnlyNamespaces       []string                    `json:"onlyNamespaces,omitempty"`
	MoreOnlyNamespaces   int                         `json:"moreOnlyNamespaces,omitempty"`
	Totals               finding.Counts              `json:"totals"`
	Images               int                         `json:"images"`
	Changes              map[diff.Change]int         `json:"changes,omitempty"`
	Sections             []announce.Section          `json:"sections,omitempty"`
	Rest                 announce.Rest               `json:"rest,omitzero"`
	NewImages            []string                    `json:"newImages,omitempty"`
	MoreNewImages        int                         `json:"moreNewImages,omitempty"`
	Notices              []announce.Notice           `json:"notices,omitempty"`
	Actions              []announce.UpdateAction     `json:"actions,omitempty"`
	MoreActions          int                         `json:"moreActions,omitempty"`
	Items                []announce.Item             `json:"items,omitempty"`
	Suppressed           int                         `json:"suppressed,omitempty"`
	NotAnnounced         int                         `json:"notAnnounced,omitempty"`
	Remaining            announce.Remaining          `json:"remaining,omitzero"`
	Namespaces           []announce.NamespaceSummary `json:"namespaces,omitempty"`
	MoreNamespaces       int                         `json:"moreNamespaces,omitempty"`
	JoinedNamespaces     []announce.NamespaceSummary `json:"joinedNamespaces,omitempty"`
	MoreJoinedNamespaces int                         `json:"moreJoinedNamespaces,omitempty"`
	Trend                *announce.Trend             `json:"trend,omitempty"`
	OldestExploited      *announce.Item              `json:"oldestExploited,omitempty"`
	Engine               string                      `json:"engine,omitempty"`
	EngineBefore         string                      `json:"engineBefore,omitempty"`
	RestoredFrom         time.Time                   `json:"restoredFrom,omitzero"`
	Unconfirmed          *announce.Unconfirmed       `json:"unconfirmed,omitempty"`
	ReadMore             string                      `json:"readMore,omitempty"`
}

// Scanner names the object that a message is of.
type Scanner struct {
	// Kind is Scanner or ClusterScanner. Namespace is the Scanner's; empty for a ClusterScanner.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Encode returns a message as a CloudEvent in the JSON format (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md).
// Its id is the message's, so that a message that comes twice is recognized.
func Encode(m announce.Message) ([]byte, error) {
	m = m.WithActions()
	data := dataOf(m)
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(m.ID)
	e.SetType(EventType)
	e.SetSource(source(data.Cluster, data.Scanner))
	e.SetSubject(subject(data.Scanner))
	e.SetTime(m.CreatedAt)
	if err := e.SetData(cloudevents.ApplicationJSON, data); err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return json.Marshal(e)
}

// source returns the path of the object in the Kubernetes API, below the cluster if that has a name.
func source(cluster string, s Scanner) string {
	path := "/apis/" + v1alpha1.GroupVersion.String()
	if cluster != "" {
		path = "/clusters/" + cluster + path
	}
	if s.Kind == announce.ClusterScannerKind {
		path += "/clusterscanners/" + s.Name
	} else {
		path += "/namespaces/" + s.Namespace + "/scanners/" + s.Name
	}
	return (&url.URL{Path: path}).String()
}

// subject returns what a message is about: a namespace, or the cluster.
func subject(s Scanner) string {
	if s.Kind == announce.ClusterScannerKind {
		return "cluster"
	}
	return "namespaces/" + s.Namespace
}

func dataOf(m announce.Message) Data {
	data := Data{
		Kind: string(m.Kind), Title: m.Title(), Cluster: m.Cluster, Scanner: Scanner{Kind: string(v1alpha1.KindScanner), Namespace: m.Namespace, Name: m.Scanner},
		OnlyNamespaces: m.OnlyNamespaces, MoreOnlyNamespaces: m.MoreOnlyNamespaces,
		Totals: m.Totals, Images: m.Images, Changes: m.Changes, Sections: m.Sections, Rest: m.Rest, NewImages: m.NewImages, MoreNewImages: m.MoreNewImages,
		Notices: m.Notices, Actions: m.Actions, MoreActions: m.MoreActions, Items: m.Worst, Suppressed: m.Suppressed, NotAnnounced: m.NotAnnounced,
		Remaining: m.Remaining, Namespaces: m.Namespaces, MoreNamespaces: m.MoreNamespaces, JoinedNamespaces: m.JoinedNamespaces,
		MoreJoinedNamespaces: m.MoreJoinedNamespaces, Engine: m.Engine, EngineBefore: m.EngineBefore, RestoredFrom: m.RestoredFrom,
		Trend: m.Trend, OldestExploited: m.OldestExploited, Unconfirmed: m.Unconfirmed, ReadMore: m.ReadMore,
	}
	if m.Kind == announce.KindChanges {
		data.Kind = kindChanges
	}
	if m.ScannerKind == announce.ClusterScannerKind {
		data.Scanner.Kind = announce.ClusterScannerKind
	}
	return data
}
