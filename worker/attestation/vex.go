package attestation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxVEXAttestation bounds one attestation with an OpenVEX document: a document of the full size, in base64 and with its signatures.
const maxVEXAttestation = 2*workerapi.MaxVEXBytes + maxSignatureBytes

// VEX is a verified OpenVEX document about an image. The document itself is not decoded.
type VEX struct {
	Content []byte
	// Signer names who signed it.
	Signer string
}

// Documents are the OpenVEX documents that the trusted signers of a registry have attached to an image.
type Documents struct {
	// Found are at most workerapi.MaxVEXDocuments with workerapi.MaxVEXBytes together.
	Found []VEX
	// Problem is why others are not among them, in one line of at most workerapi.MaxVEXProblemBytes; empty if all are, or if there are none.
	Problem string
	// Unread is true if a document of a signer may be missing in Found: something that is attached was not read, or its signature not checked.
	Unread bool
}

// FindVEX returns the OpenVEX documents that the trusted signers of a registry have attached to an image.
//
// err is a *failure.Error if the registry throttles: then the image cannot be cataloged now either.
func FindVEX(ctx context.Context, puller *registry.Puller, img *registry.Image, of workerapi.Registry, log *slog.Logger) (Documents, error) {
	var found []VEX
	room := workerapi.MaxVEXBytes
	wanted := wanted{isVEX, func(_ string, s *statement, by signed) error {
		document, err := s.document()
		switch {
		case err != nil:
			return err
		case len(document) == 0:
			return errors.New("its statement has no predicate")
		case len(found) == workerapi.MaxVEXDocuments:
			return fmt.Errorf("%d OpenVEX documents are read for one image, and this is one more", workerapi.MaxVEXDocuments)
		case len(document) > room:
			return fmt.Errorf("its OpenVEX document has %d bytes; at most %d of all documents of an image are read", len(document), workerapi.MaxVEXBytes)
		}
		if slices.ContainsFunc(found, func(v VEX) bool { return bytes.Equal(v.Content, document) && v.Signer == by.signer }) {
			return nil // attached in two ways
		}
		room -= len(document)
		found = append(found, VEX{Content: document, Signer: by.signer})
		return nil
	}, maxVEXAttestation}
	signers, trustedRoot := of.VEXTrust()
	f, problem, err := search(ctx, puller, img, trust{signers, trustedRoot}, wanted, log)
	if err != nil || problem != "" {
		return Documents{Problem: problem, Unread: true}, err
	}
	return Documents{Found: found, Problem: f.problem(), Unread: !f.isComplete()}, nil
}
