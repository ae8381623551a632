package attestation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anchore/syft/syft/sbom"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/worker/catalog"
)

// maxSubjects bounds the subjects of a statement.
const maxSubjects = 1024

// statement is an in-toto statement (https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md).
type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Digest map[string]string `json:"digest"`
}

// Predicate types.
const (
	predicateSPDX      = "https://spdx.dev/Document"
	predicateCycloneDX = "https://cyclonedx.org/bom"
	predicateOpenVEX   = "https://openvex.dev/ns"
	// predicateCustom is cosign's for any file (cosign attest --type custom). The file is a string in the predicate's field Data
	// (https://github.com/sigstore/cosign/blob/main/specs/COSIGN_PREDICATE_SPEC.md). It is the only one for syft-json.
	predicateCustom = "https://cosign.sigstore.dev/attestation/v1"
	// predicateSignature is that of cosign sign.
	predicateSignature = "https://sigstore.dev/cosign/sign/v1"
)

// isSBOM reports whether statements with a predicate type may hold an SBOM. Types may end in a version.
func isSBOM(predicateType string) bool {
	if predicateType == predicateCustom {
		return true
	}
	return isOf(predicateType, predicateSPDX) || isOf(predicateType, predicateCycloneDX)
}

// isVEX reports whether statements with a predicate type hold an OpenVEX document.
func isVEX(predicateType string) bool { return isOf(predicateType, predicateOpenVEX) }

// isOf reports whether a predicate type is the known one, which may be followed by a version.
func isOf(predicateType, known string) bool {
	return predicateType == known || strings.HasPrefix(predicateType, known+"/")
}

func decodeStatement(raw []byte) (*statement, error) {
	var s statement
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("its statement is not readable: %w", err)
	}
	if !strings.HasPrefix(s.Type, "https://in-toto.io/Statement/") {
		return nil, fmt.Errorf("it holds %.80q instead of an in-toto statement", s.Type)
	}
	if len(s.Subject) > maxSubjects {
		return nil, fmt.Errorf("its statement has %d subjects, more than the limit of %d", len(s.Subject), maxSubjects)
	}
	return &s, nil
}

// requireSubject returns an error unless the statement is about one of the digests.
func (s *statement) requireSubject(of []v1.Hash) error {
	named := "nothing"
	for _, subject := range s.Subject {
		digest := subject.Digest["sha256"]
		if slices.ContainsFunc(of, func(h v1.Hash) bool { return h.Algorithm == "sha256" && h.Hex == digest }) {
			return nil
		}
		named = "sha256:" + digest
	}
	return irrelevant{fmt.Errorf("it is about %.80s, and not about %s", named, of[0])}
}

// document returns the predicate's document in JSON. Some tools attach it as text.
func (s *statement) document() ([]byte, error) {
	raw := []byte(s.Predicate)
	if !bytes.HasPrefix(raw, []byte(`"`)) {
		return raw, nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return []byte(text), err
}

// sbom decodes the SBOM that a statement holds. created is the time that the document has; zero if it has none.
func (s *statement) sbom() (contents *sbom.SBOM, id sbom.FormatID, created time.Time, err error) {
	raw, err := s.document()
	if err != nil {
		return nil, "", time.Time{}, err
	}
	when := raw
	if s.PredicateType == predicateCustom {
		var custom struct{ Data string }
		if err := json.Unmarshal(s.Predicate, &custom); err != nil {
			return nil, "", time.Time{}, fmt.Errorf("its predicate of cosign's type custom is not readable: %w", err)
		}
		raw = []byte(custom.Data)
	}
	if contents, id, err = catalog.Decode(raw); err != nil {
		return nil, "", time.Time{}, fmt.Errorf("its SBOM %w", err)
	}
	return contents, id, createdAt(when), nil
}

// createdAt returns the time that a document of CycloneDX or SPDX, or a predicate of cosign's type custom has; zero if it has none, or a wrong one.
func createdAt(raw []byte) time.Time {
	var document struct {
		CreationInfo struct{ Created string }
		Metadata     struct{ Timestamp string }
		Timestamp    string
	}
	if json.Unmarshal(raw, &document) != nil {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, cmp.Or(document.CreationInfo.Created, document.Metadata.Timestamp, document.Timestamp))
	return at
}
