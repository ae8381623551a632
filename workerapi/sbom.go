package workerapi

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// PreferAttestation is the value of SBOMSource.Prefer with which attested SBOMs replace the catalog of an image.
const PreferAttestation = "Attestation"

// MaxSigners bounds the signers of one registry.
const MaxSigners = 16

// SBOMSource configures where the SBOMs of a registry's images come from. The zero value means that images are cataloged.
type SBOMSource struct {
	// Prefer is PreferAttestation or empty.
	Prefer string `json:"prefer,omitempty"`
	// Signers are trusted to state which packages an image has. One of them must have signed an SBOM.
	Signers []Signer `json:"signers,omitempty"`
	// TrustedRoot is a Sigstore trusted root in JSON (trusted_root.json): the authorities and logs that keyless signatures are verified with.
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// Signer is trusted by its key, or by an identity that an issuer has confirmed (keyless).
type Signer struct {
	// PublicKey is in PEM format. It excludes the other fields.
	PublicKey string `json:"publicKey,omitempty"`
	// Issuer is the URL of the OpenID Connect issuer in the certificate.
	Issuer string `json:"issuer,omitempty"`
	// Identity is the subject alternative name of the certificate: an e-mail address, or the URL of a workflow.
	Identity string `json:"identity,omitempty"`
	// IdentityRegExp matches the whole subject alternative name instead.
	IdentityRegExp string `json:"identityRegExp,omitempty"`
}

// PrefersAttestation reports whether attested SBOMs replace the catalog of an image.
func (s SBOMSource) PrefersAttestation() bool { return s.Prefer == PreferAttestation }

// Policy identifies whom the source trusts: two sources have the same policy if, and only if, they accept the same attestations. It is
// empty if the source prefers no attestation.
func (s SBOMSource) Policy() string {
	if !s.PrefersAttestation() {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("marshalling an SBOM source: %v", err)) // strings and slices always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Problem returns the first field that cannot be used, as a path below the source, and why; both are empty if there is none.
func (s SBOMSource) Problem() (field, problem string) {
	switch {
	case s.Prefer != "" && s.Prefer != PreferAttestation:
		return "prefer", "must be " + PreferAttestation + ", or empty"
	case s.Prefer == "" && (len(s.Signers) > 0 || s.TrustedRoot != ""):
		return "prefer", "must be " + PreferAttestation + " with signers or a trustedRoot: without it, images are cataloged and nobody is trusted"
	case s.PrefersAttestation() && len(s.Signers) == 0:
		return "signers", "must name at least one signer: an SBOM by anybody would be believed otherwise"
	}
	return trustProblem(s.Signers, s.TrustedRoot)
}

// trustProblem returns the first field of signers and trusted root that cannot be used, and why.
func trustProblem(signers []Signer, trustedRoot string) (field, problem string) {
	if len(signers) > MaxSigners {
		return "signers", fmt.Sprintf("there are %d of them, at most %d are allowed", len(signers), MaxSigners)
	}
	for i, signer := range signers {
		if field, problem := signer.problem(trustedRoot != ""); problem != "" {
			return fmt.Sprintf("signers[%d]%s", i, field), problem
		}
	}
	var root struct {
		MediaType string `json:"mediaType"`
	}
	if trustedRoot != "" && (json.Unmarshal([]byte(trustedRoot), &root) != nil || !strings.HasPrefix(root.MediaType, "application/vnd.dev.sigstore.trustedroot")) {
		return "trustedRoot", "must be the content of a Sigstore trusted_root.json (cosign trusted-root create, or the file of your Sigstore's TUF repository)"
	}
	return "", ""
}

// problem returns the first field that cannot be used, with a dot before it, and why.
func (s Signer) problem(hasRoot bool) (field, problem string) {
	if s.PublicKey != "" {
		return s.keyProblem()
	}
	issuer, err := url.Parse(s.Issuer)
	switch {
	case s.Issuer == "" && s.Identity == "" && s.IdentityRegExp == "":
		return "", "must have a publicKey, or an issuer with an identity"
	case err != nil || issuer.Scheme == "" || issuer.Host == "":
		return ".issuer", "must be the URL of the issuer of the signer's identity, such as https://token.actions.githubusercontent.com"
	case s.Identity == "" && s.IdentityRegExp == "":
		return ".identity", "must be set, or identityRegExp: everybody who can log in at the issuer would be trusted otherwise"
	case s.Identity != "" && s.IdentityRegExp != "":
		return ".identityRegExp", "must not be set beside identity"
	case !hasRoot:
		return "", "has an identity and needs the trustedRoot beside signers: the operator downloads none"
	}
	if _, err := s.IdentityPattern(); err != nil {
		return ".identityRegExp", err.Error()
	}
	return "", ""
}

// keyProblem is problem for a signer with a key.
func (s Signer) keyProblem() (field, problem string) {
	block, rest := pem.Decode([]byte(s.PublicKey))
	switch {
	case s.Issuer != "" || s.Identity != "" || s.IdentityRegExp != "":
		return "", "must have either a publicKey, or an issuer with an identity"
	case block == nil || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "":
		return ".publicKey", "must be one public key in PEM format (cosign.pub)"
	}
	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return ".publicKey", "cannot be read: " + err.Error()
	}
	return "", ""
}

// IdentityPattern returns IdentityRegExp as an expression that matches whole identities; empty if there is none. Without the anchors,
// "github.com/acme/" would match "https://evil.example/github.com/acme/".
func (s Signer) IdentityPattern() (string, error) {
	if s.IdentityRegExp == "" {
		return "", nil
	}
	// Alone first: "a)|(b" is valid between parentheses only.
	if _, err := regexp.Compile(s.IdentityRegExp); err != nil {
		return "", fmt.Errorf("is not a regular expression (RE2): %w", err)
	}
	return "^(?:" + s.IdentityRegExp + ")$", nil
}
