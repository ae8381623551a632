package attestation

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"
)

// hashes are those that signers combine with ECDSA and RSA keys: cosign before 2.6 signs with SHA-256 whatever the key, and key management services let
// their users choose.
var hashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}

// anyAlgorithm accepts the signatures of one key by each algorithm that is safe with it.
type anyAlgorithm struct {
	signature.Verifier // of the algorithm that is usual for the key
	all                []signature.Verifier
}

// newAnyAlgorithm returns the verifier of a key. names says which algorithms it accepts.
func newAnyAlgorithm(key crypto.PublicKey) (accepts signature.Verifier, names string, err error) {
	usual, err := signature.LoadDefaultVerifier(key)
	if err != nil {
		return nil, "", err
	}
	v := &anyAlgorithm{Verifier: usual}
	var kind string
	for _, hash := range hashes {
		switch key := key.(type) {
		case *ecdsa.PublicKey:
			kind = "ECDSA " + key.Params().Name
			err = v.add(signature.LoadECDSAVerifier(key, hash))
		case *rsa.PublicKey:
			kind = fmt.Sprintf("RSA of %d bits (PKCS #1 v1.5 and PSS)", key.N.BitLen())
			one, failed := signature.LoadRSAPKCS1v15Verifier(key, hash)
			two, failedToo := signature.LoadRSAPSSVerifier(key, hash, nil)
			err = errors.Join(v.add(one, failed), v.add(two, failedToo))
		default:
			return usual, "Ed25519", nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	tried := make([]string, len(hashes))
	for i, hash := range hashes {
		tried[i] = hash.String()
	}
	return v, kind + " with " + strings.Join(tried, ", "), nil
}

func (v *anyAlgorithm) add(one signature.Verifier, err error) error {
	v.all = append(v.all, one)
	return err
}

// VerifySignature implements signature.Verifier.
func (v *anyAlgorithm) VerifySignature(sig, message io.Reader, options ...signature.VerifyOption) error {
	signed, err := io.ReadAll(sig)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(message)
	if err != nil {
		return err
	}
	for _, one := range v.all {
		if one.VerifySignature(bytes.NewReader(signed), bytes.NewReader(content), options...) == nil {
			return nil
		}
	}
	return errors.New("no algorithm of the key fits the signature")
}
