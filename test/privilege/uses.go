package privilege

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// podOfToken is in the audit log's user info for a token that the kubelet has mounted into a pod. A test that requests a token for a
// process, or impersonates it, does not have it.
const podOfToken = "authentication.kubernetes.io/pod-name"

// decision is the annotation with RBAC's decision, independent of later admission.
const decision = "authorization.k8s.io/decision"

// Use is a request of a process to the API server.
type Use struct {
	// Account is the ServiceAccount's name.
	Account string
	// Namespace is empty for cluster-scoped resources, and for requests to all namespaces.
	Namespace string
	Verb      string
	Group     string
	// Resource includes its subresource: imagescans/status.
	Resource string
	Name     string
}

func (u Use) String() string {
	where := u.Namespace
	if where == "" {
		where = "the cluster"
	}
	return fmt.Sprintf("%s: %s %s in %s", u.Account, u.Verb, strings.TrimSpace(qualified(u.Resource, u.Group)+" "+u.Name), where)
}

// qualified returns a resource in kubectl's form: jobs.batch, imagescans.scanner-operator.io/status.
func qualified(resource, group string) string {
	if group == "" {
		return resource
	}
	kind, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(kind+"."+group+"/"+sub, "/")
}

// Uses counts the allowed and the denied requests.
type Uses struct {
	Allowed, Denied map[Use]int
}

// Log is the API server's audit log of the operator's requests, from an offset on. The zero value is for a cluster without an audit log.
type Log struct {
	file string
	from int64
}

// BeginLog returns the local cluster's log (SCANNER_AUDIT_LOG) from its current end on.
func BeginLog() (Log, error) {
	file := os.Getenv("SCANNER_AUDIT_LOG")
	if file == "" {
		return Log{}, nil
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Log{}, nil // the cluster was started without an audit log
	}
	if err != nil {
		return Log{}, err
	}
	return Log{file, info.Size()}, nil
}

// IsWritten reports whether there is a log.
func (l Log) IsWritten() bool { return l.file != "" }

// Uses returns the requests of pods whose ServiceAccounts are in the given namespace.
func (l Log) Uses(namespace string) (Uses, error) { return ReadUses(l.file, l.from, namespace) }

// ReadUses reads the requests of pods whose ServiceAccounts are in a namespace from an audit log, beginning at an offset. An incomplete
// last event is ignored, since the API server may be writing it.
func ReadUses(file string, from int64, namespace string) (Uses, error) {
	log, err := os.Open(file)
	if err != nil {
		return Uses{}, err
	}
	defer log.Close()
	if _, err := log.Seek(from, io.SeekStart); err != nil {
		return Uses{}, err
	}
	uses := Uses{Allowed: map[Use]int{}, Denied: map[Use]int{}}
	events := json.NewDecoder(log)
	for {
		var event auditv1.Event
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return uses, nil
		case err != nil:
			return Uses{}, fmt.Errorf("audit log %s: %w", file, err)
		}
		uses.add(&event, namespace)
	}
}

// add counts an event. Non-resource requests are ignored: every account may make them. A request that was denied for another reason than
// RBAC (by a policy, or because its namespace is being deleted) is ignored too, since it shows neither that a permission is needed nor
// that it is missing.
func (u Uses) add(event *auditv1.Event, namespace string) {
	account, of := strings.CutPrefix(event.User.Username, "system:serviceaccount:"+namespace+":")
	if !of || event.ImpersonatedUser != nil || event.ObjectRef == nil || len(event.User.Extra[podOfToken]) == 0 {
		return
	}
	about := event.ObjectRef
	use := Use{Account: account, Namespace: about.Namespace, Verb: event.Verb, Group: about.APIGroup,
		Resource: strings.TrimSuffix(about.Resource+"/"+about.Subresource, "/"), Name: about.Name}
	if about.APIGroup == "" && about.Resource == "namespaces" {
		use.Namespace = "" // the audit log gives a Namespace object its own name as its namespace
	}
	switch {
	case event.Annotations[decision] == "forbid":
		u.Denied[use]++
	case event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusForbidden:
		u.Allowed[use]++
	}
}
