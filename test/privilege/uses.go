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

// podOfToken is what the API server says of whoever has a token that the kubelet has put into a pod. A test that asks for a
// token of a process, or acts in its name, has none of these.
const podOfToken = "authentication.kubernetes.io/pod-name"

// decision is what RBAC said, whatever came after it.
const decision = "authorization.k8s.io/decision"

// Use is something that a process has asked of the API server.
type Use struct {
	// Account is the ServiceAccount's name.
	Account string
	// Namespace is empty for what is in none, and for all namespaces at once.
	Namespace string
	Verb      string
	Group     string
	// Resource has its subresource: imagescans/status.
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

// qualified is a resource as kubectl names it: jobs.batch, imagescans.scanner-operator.io/status.
func qualified(resource, group string) string {
	if group == "" {
		return resource
	}
	kind, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(kind+"."+group+"/"+sub, "/")
}

// Uses counts what was allowed and what was forbidden.
type Uses struct {
	Allowed, Denied map[Use]int
}

// Log is the API server's log of what the operator asks, from a place on. Its zero value is for a cluster that writes none.
type Log struct {
	file string
	from int64
}

// BeginLog is the local cluster's log from now on (SCANNER_AUDIT_LOG).
func BeginLog() (Log, error) {
	file := os.Getenv("SCANNER_AUDIT_LOG")
	if file == "" {
		return Log{}, nil
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Log{}, nil // a cluster that was started before it had a log
	}
	if err != nil {
		return Log{}, err
	}
	return Log{file, info.Size()}, nil
}

// Written says whether there is a log.
func (l Log) Written() bool { return l.file != "" }

// Uses by pods whose ServiceAccounts are in a namespace.
func (l Log) Uses(namespace string) (Uses, error) { return ReadUses(l.file, l.from, namespace) }

// ReadUses reads an audit log from a place on: the uses by pods whose ServiceAccounts are in a namespace. The API server may be
// writing the last event.
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

// add counts an event. Everybody may ask for what is no resource. A request that is refused for another reason than the want
// of a right (by a policy, or since its namespace is being deleted) shows neither that it is needed nor that it is missing.
func (u Uses) add(event *auditv1.Event, namespace string) {
	account, of := strings.CutPrefix(event.User.Username, "system:serviceaccount:"+namespace+":")
	if !of || event.ImpersonatedUser != nil || event.ObjectRef == nil || len(event.User.Extra[podOfToken]) == 0 {
		return
	}
	about := event.ObjectRef
	use := Use{Account: account, Namespace: about.Namespace, Verb: event.Verb, Group: about.APIGroup,
		Resource: strings.TrimSuffix(about.Resource+"/"+about.Subresource, "/"), Name: about.Name}
	if about.APIGroup == "" && about.Resource == "namespaces" {
		use.Namespace = "" // the log says of a namespace that it is in itself
	}
	switch {
	case event.Annotations[decision] == "forbid":
		u.Denied[use]++
	case event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusForbidden:
		u.Allowed[use]++
	}
}
