package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
)

// scope is where a permission is needed.
type scope string

const (
	inNamespace         scope = "in the namespace"
	inOperatorNamespace scope = "in the operator's namespace"
	inCluster           scope = "in the whole cluster"
)

// permission is an RBAC rule that a command needs.
type permission struct {
	verbs           []string
	group, resource string
	// name limits the rule to one object.
	name  string
	scope scope
	// when says in which case the permission is needed; empty for always.
	when string
}

func (p permission) String() string {
	resource := p.resource
	if p.group != "" {
		resource += "." + p.group
	}
	if p.name != "" {
		resource += " " + p.name
	}
	text := fmt.Sprintf("%s %s %s", strings.Join(p.verbs, ", "), resource, p.scope)
	if p.when != "" {
		text += " (" + p.when + ")"
	}
	return text
}

// own returns a permission on one of the operator's kinds in the namespace.
func own(resource, when string, verbs ...string) permission {
	return permission{verbs: verbs, group: v1alpha1.GroupVersion.Group, resource: resource, scope: inNamespace, when: when}
}

// toConnect are the permissions to reach the REST API. Everybody with an account has the first one.
var toConnect = []permission{
	{verbs: []string{"get"}, resource: "configmaps", name: connect.Bundle, scope: inOperatorNamespace},
	{verbs: []string{"get"}, resource: "services", name: connect.Service, scope: inOperatorNamespace, when: withoutServer},
	{verbs: []string{"list"}, resource: "pods", scope: inOperatorNamespace, when: withoutServer},
	{verbs: []string{"get", "create"}, resource: "pods/portforward", scope: inOperatorNamespace, when: withoutServer},
}

const withoutServer = "without --server"

// requires adds the permissions of a command to its help.
func (s *session) requires(c *cobra.Command, needs ...permission) *cobra.Command {
	s.needs[c.Name()] = needs
	var text strings.Builder
	text.WriteString(c.Long + "\n\nPermissions:\n")
	for _, need := range needs {
		text.WriteString("  " + need.String() + "\n")
	}
	c.Long = strings.TrimRight(text.String(), "\n")
	return c
}

// requiresConnection adds the permissions of a command that uses the REST API.
func (s *session) requiresConnection(c *cobra.Command, needs ...permission) *cobra.Command {
	return s.requires(c, slices.Concat(needs, toConnect)...)
}
