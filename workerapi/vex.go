package workerapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// VEXFromImage is the value of VEXSource.Sources with which OpenVEX documents that are attached to an image count.
const VEXFromImage = "Image"

// Bounds of the OpenVEX documents of one image.
const (
	// MaxVEXBytes bounds all documents together.
	MaxVEXBytes = 1 << 20
	// MaxVEXDocuments bounds their number.
	MaxVEXDocuments = 16
	// MaxVEXStatements bounds the statements of all documents.
	MaxVEXStatements = 500
	// MaxVEXProblemBytes bounds why documents are not accepted. More is cut off.
	MaxVEXProblemBytes = 512
)

// VEXSource configures which OpenVEX documents about a registry's images count. The zero value means none.
type VEXSource struct {
	// Sources has VEXFromImage, or nothing.
	Sources []string `json:"sources,omitempty"`
	// Signers are trusted to state which vulnerabilities do not affect an image. One of them must have signed a document. Without signers, those
	// of the registry's SBOMSource are trusted.
	Signers []Signer `json:"signers,omitempty"`
	// TrustedRoot is that of Signers, as in SBOMSource.
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// VEXDocument is an OpenVEX document of a catalog Job's upload.
type VEXDocument struct {
	// Signer is who signed it.
	Signer string `json:"signer"`
	// Size is that of the document in bytes.
	Size int64 `json:"size"`
}

// ReadsImages reports whether documents that are attached to images count.
func (s VEXSource) ReadsImages() bool { return slices.Contains(s.Sources, VEXFromImage) }

// VEXTrust returns whom the registry's VEX source trusts: its own signers, or those of the SBOM source.
func (r Registry) VEXTrust() (signers []Signer, trustedRoot string) {
	if len(r.VEX.Signers) == 0 {
		return r.SBOM.Signers, r.SBOM.TrustedRoot
	}
	return r.VEX.Signers, r.VEX.TrustedRoot
}

// VEXPolicy identifies whom the registry trusts to make statements about its images: two registries have the same policy if, and only if, they
// accept the same documents. It is empty if the registry reads none.
func (r Registry) VEXPolicy() string {
	if !r.VEX.ReadsImages() {
		return ""
	}
	source := VEXSource{Sources: []string{VEXFromImage}}
	source.Signers, source.TrustedRoot = r.VEXTrust()
	text, err := json.Marshal(source)
	if err != nil {
		panic(fmt.Sprintf("marshalling a VEX source: %v", err)) // strings and slices always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// VEXProblem returns the first field of the VEX source that cannot be used, as a path below it, and why; both are empty if there is none.
func (r Registry) VEXProblem() (field, problem string) {
	s := r.VEX
	for i, source := range s.Sources {
		if source != VEXFromImage || i > 0 {
			return fmt.Sprintf("sources[%d]", i), "must be " + VEXFromImage + ", which may be named once"
		}
	}
	switch {
	case len(s.Sources) == 0 && (len(s.Signers) > 0 || s.TrustedRoot != ""):
		return "sources", "must be [" + VEXFromImage + "] with signers or a trustedRoot: without it, no statement counts"
	case len(s.Signers) == 0 && s.TrustedRoot != "":
		return "trustedRoot", "must be beside signers: without signers, those of sbom count with their trustedRoot"
	case s.ReadsImages() && len(s.Signers) == 0 && len(r.SBOM.Signers) == 0:
		return "signers", "must name at least one signer, or sbom must: a statement by anybody would hide findings otherwise"
	}
	return trustProblem(s.Signers, s.TrustedRoot)
}
