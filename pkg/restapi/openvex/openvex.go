// Package openvex writes the decisions about an image's findings as an OpenVEX document
// (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md), for tools that filter findings by such documents.
//
// A document contains only decisions: findings without an exception are not part of it. The same decisions about the same report give the
// same document. The package knows no store and no HTTP.
package openvex

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/openvex/go-vex/pkg/vex"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Report is the input for a document.
type Report struct {
	// Namespace is the one whose exceptions apply.
	Namespace string
	// Repositories are those in the pods' image references, without tags.
	Repositories []string
	Key          image.Key
	// MatchedAt is when the image was matched.
	MatchedAt  time.Time
	Suppressed []SuppressedFinding
}

// SuppressedFinding is a finding and the exception that suppresses it.
type SuppressedFinding struct {
	Finding   finding.Finding
	Exception exception.Exception
}

// Write writes the document to w. It returns the errors of w, and an error for an exception that OpenVEX does not allow.
func Write(w io.Writer, r Report) error {
	document, err := r.document()
	if err != nil {
		return err
	}
	return document.ToJSON(w)
}

func (r Report) document() (*vex.VEX, error) {
	document := &vex.VEX{
		Metadata: vex.Metadata{
			Context: vex.ContextLocator(), Author: "exceptions in namespace " + r.Namespace, Version: 1, Tooling: "Scanner Operator",
		},
		Statements: []vex.Statement{},
	}
	issued := r.MatchedAt
	for _, group := range grouped(r.Suppressed) {
		statement := r.statement(group)
		if err := statement.Validate(); err != nil {
			return nil, fmt.Errorf("exception %s: %w", group[0].Exception.Resource(), err)
		}
		document.Statements = append(document.Statements, statement)
		if created := group[0].Exception.Created; created.After(issued) {
			issued = created
		}
	}
	issued = issued.UTC()
	document.Timestamp = &issued
	hash, err := document.CanonicalHash()
	if err != nil {
		return nil, err
	}
	document.ID = "urn:scanner-operator:openvex:" + hash
	return document, nil
}

// grouped groups findings into statements: each is about one vulnerability and one exception.
func grouped(suppressed []SuppressedFinding) [][]SuppressedFinding {
	sorted := slices.Clone(suppressed)
	slices.SortStableFunc(sorted, func(a, b SuppressedFinding) int {
		return cmp.Or(strings.Compare(a.Finding.ID, b.Finding.ID), strings.Compare(a.Exception.UID, b.Exception.UID))
	})
	var groups [][]SuppressedFinding
	for _, s := range sorted {
		last := len(groups) - 1
		if last >= 0 && groups[last][0].Finding.ID == s.Finding.ID && groups[last][0].Exception.UID == s.Exception.UID {
			groups[last] = append(groups[last], s)
		} else {
			groups = append(groups, []SuppressedFinding{s})
		}
	}
	return groups
}

// statement returns what one exception states about one vulnerability. OpenVEX has a field for the reason only with not_affected, and one
// for the action only with affected. For other statuses, the reason is part of the status notes.
func (r Report) statement(group []SuppressedFinding) vex.Statement {
	e := group[0].Exception
	created := e.Created.UTC()
	statement := vex.Statement{
		Vulnerability: vulnerabilityOf(group), Timestamp: &created, Status: vex.Status(e.Status),
		Justification: vex.Justification(e.Justification), ActionStatement: e.Action, StatusNotes: "by " + e.Resource(),
	}
	if !e.Expires.IsZero() {
		statement.StatusNotes += ", until " + e.Expires.UTC().Format(time.RFC3339)
	}
	if statement.Status == vex.StatusNotAffected {
		statement.ImpactStatement = e.Reason
	} else {
		statement.StatusNotes += ": " + e.Reason
	}
	if statement.Status == vex.StatusAffected {
		statement.ActionStatementTimestamp = &created
	} else {
		statement.ActionStatement = ""
	}
	for _, repository := range r.Repositories {
		purl := image.PURL(repository, r.Key)
		statement.Products = append(statement.Products, vex.Product{
			Component:     vex.Component{ID: purl, Identifiers: map[vex.IdentifierType]string{vex.PURL: purl}},
			Subcomponents: subcomponentsOf(group),
		})
	}
	return statement
}

func vulnerabilityOf(group []SuppressedFinding) vex.Vulnerability {
	v := vex.Vulnerability{Name: vex.VulnerabilityID(group[0].Finding.ID)}
	for _, e := range group {
		for _, alias := range e.Finding.Aliases {
			v.Aliases = append(v.Aliases, vex.VulnerabilityID(alias))
		}
	}
	slices.Sort(v.Aliases)
	v.Aliases = slices.Compact(v.Aliases)
	return v
}

// subcomponentsOf lists the packages, each once. A package without a package URL is named by its type, name and version.
func subcomponentsOf(group []SuppressedFinding) []vex.Subcomponent {
	var ids []string
	for _, e := range group {
		pkg := e.Finding.Package
		id := pkg.PURL
		if id == "" {
			id = fmt.Sprintf("%s:%s@%s", pkg.Type, pkg.Name, pkg.Version)
		}
		ids = append(ids, strings.ToValidUTF8(id, "\uFFFD"))
	}
	slices.Sort(ids)
	var subcomponents []vex.Subcomponent
	for _, id := range slices.Compact(ids) {
		subcomponents = append(subcomponents, vex.Subcomponent{Component: vex.Component{ID: id}})
	}
	return subcomponents
}
