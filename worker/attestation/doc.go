// Package attestation finds the SBOM that an image's publisher attached to the image, and verifies who signed it.
//
// It promises that
//   - an SBOM is returned only if one of the configured signers has signed it, or the index that holds it, and it names the image's digest,
//   - nothing that is not signed by such a signer is decoded as an SBOM,
//   - what is read for one image is bounded, whatever a repository holds,
//   - whenever no SBOM is returned, there is a reason in one line that a user can act on.
//
// It reads no configuration, catalogs nothing, and does not decide what happens without an SBOM.
package attestation
