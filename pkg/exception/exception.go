// Package exception decides which findings need no action, why, and until when.
//
// An exception is a decision about vulnerabilities in packages, in the terms of OpenVEX (https://github.com/openvex/spec). It suppresses
// findings and never deletes them: suppressed findings are left out of counts and messages, and shown as suppressed. The package only
// compares; it knows no Kubernetes, no store and no clock.
package exception

import (
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Exception is one decision about findings.
type Exception struct {
	// UID, Namespace and Name are those of the resource. Namespace is empty for a cluster-wide exception.
	UID, Namespace, Name string
	// Namespaces are those that a cluster-wide exception selects; nil for all.
	Namespaces map[string]bool
	// Status and Justification are OpenVEX terms. Justification is empty unless Status is not_affected.
	Status, Justification string
	// Reason is for people. Action is what is done about the finding, for the status affected.
	Reason, Action string
	// Vulnerabilities are IDs or aliases, in upper or lower case; empty for all.
	Vulnerabilities []string
	// Packages to which it applies; empty for all. With neither vulnerabilities nor packages it suppresses nothing.
	Packages []Package
	// Images are globs (image.Match) of repository, repository:tag or repository@digest; empty for all.
	Images []string
	// Created is when the resource was created, or the statement made. Expires is zero if the exception never expires.
	Created, Expires time.Time
	// Manifest is set for a statement of an OpenVEX document that is attached to an image, and limits it to that image: the exception is no resource,
	// Name is the document's ID, and Signer is who signed the document.
	Manifest int64
	Signer   string
}

// Kinds of exceptions.
const (
	KindNamespaced  = "VulnerabilityException"
	KindClusterWide = "ClusterVulnerabilityException"
	// KindStatement is a statement of an OpenVEX document that is attached to an image. It is no resource.
	KindStatement = "OpenVEX"
)

// Sources of exceptions.
const (
	FromResource = "Resource"
	FromImage    = "Image"
)

// IsStatement reports whether the exception is a statement of a document that is attached to an image, and no resource.
func (e Exception) IsStatement() bool { return e.Manifest != 0 }

// Kind returns the exception's kind.
func (e Exception) Kind() string {
	switch {
	case e.IsStatement():
		return KindStatement
	case e.Namespace == "":
		return KindClusterWide
	}
	return KindNamespaced
}

// Source returns where the exception comes from.
func (e Exception) Source() string {
	if e.IsStatement() {
		return FromImage
	}
	return FromResource
}

// Resource returns the kind and the name of the resource, such as "VulnerabilityException shop/accepted". For a statement it names the document
// and its signer.
func (e Exception) Resource() string {
	switch {
	case e.IsStatement():
		return fmt.Sprintf("%s %s, attached to the image and signed by %s", KindStatement, e.Name, e.Signer)
	case e.Namespace == "":
		return KindClusterWide + " " + e.Name
	}
	return KindNamespaced + " " + e.Namespace + "/" + e.Name
}

// Package selects packages. An empty field selects all.
type Package struct {
	// Name and Version are globs (image.Glob). A Name that is a package URL selects exactly the package that it names, in any spelling of it.
	Name, Version string
	// Type is the engine's package type: deb, apk, rpm, go-module, npm, …
	Type string
	// Qualifiers limit a package URL to an architecture and a release, such as arch=arm64&distro=debian-12.
	Qualifiers string
}

// FullName returns the name with its qualifiers.
func (p Package) FullName() string {
	if p.Qualifiers == "" {
		return p.Name
	}
	return p.Name + "?" + p.Qualifiers
}

// Image is one name under which a running container uses an image.
type Image struct {
	// Namespace of the container. Empty if all exceptions that it is compared with apply to the namespace.
	Namespace string
	// Reference is the one in the pod spec.
	Reference image.Reference
	// Digest is the one that the node reports.
	Digest string
	// Manifest identifies the platform's manifest in its credential scope, as Exception.Manifest does; 0 while it is not known.
	Manifest int64
}
