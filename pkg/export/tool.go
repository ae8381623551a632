package export

import (
	"context"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// tool decides what the tools of one type get about a workload.
type tool interface {
	// needsAllResults means that nothing is sent about a workload while one of its images has no result.
	needsAllResults() bool
	// timeout is the bound of a request to the tool.
	timeout() time.Duration
	// lacksDocument reports whether an image of a workload has a result, and not what the tool gets.
	lacksDocument(w store.WorkloadVersion) bool
	// versionOf identifies everything that decides about the documents of a workload.
	versionOf(s Settings, w store.WorkloadVersion) string
	// documents returns the documents about a workload by name. It is called within a snapshot of the store.
	documents(ctx context.Context, s Settings, from Store, w store.WorkloadVersion) (map[string]document, error)
	// closing returns the document that leaves nothing in a project, for a workload that is not there any more.
	closing(p Project) (document, error)
}

// tools are those of all types, by announce.ReceiverRef.Type.
var tools = map[string]tool{TypeDefectDojo: defectDojo{}, TypeDependencyTrack: dependencyTrack{}}

// document is what a tool keeps in one project about a workload.
type document struct {
	project Project
	// id is the same for the same content.
	id string
	// read returns the content in the form of Request.Document. The error is the store's, or a tooLargeError. Without it, there is no content, and
	// what the tool has stays.
	read func(ctx context.Context) ([]byte, error)
	// closes means that nothing is left in the project. isCut means that the content lacks findings that are present.
	closes, isCut bool
}

// documentOf returns a document with some content.
func documentOf(p Project, content []byte) document {
	return document{project: p, id: string(content), read: func(context.Context) ([]byte, error) { return content, nil }}
}
