package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
)

// Documents of an image. Beside these, the formats of its SBOM are named as in the REST API.
const (
	documentCycloneDX = "cyclonedx"
	documentOpenVEX   = "openvex"
	documentSARIF     = "sarif"
)

var documents = []string{
	string(restv1.FormatSyft), string(restv1.FormatCycloneDX), string(restv1.FormatSPDX), documentCycloneDX, documentOpenVEX, documentSARIF,
}

func (s *session) sbomCommand() *cobra.Command {
	var format, file string
	c := &cobra.Command{
		Use: "sbom IMAGE", Short: "Print the SBOM of an image, or its report as CycloneDX, SARIF or OpenVEX", Args: cobra.ExactArgs(1),
		Long: `Print the SBOM of an image, its findings as CycloneDX or SARIF, or the decisions about them as OpenVEX.

The SBOM is there in Syft's format, and as CycloneDX 1.6 (cyclonedx-json) and SPDX 2.3 (spdx-json) if the operator's configuration named these
formats when the image was cataloged. It lists all packages and no findings; cyclonedx has the findings, and only packages with findings.

IMAGE is the ImageScan's name, the image's reference or a part of it, its digest, or a workload such as Deployment/web.`,
		Example: `  kubectl scanner sbom shop/web:1.4 -n shop --file web.json
  kubectl scanner sbom shop/web:1.4 -n shop --format spdx-json
  kubectl scanner sbom shop/web:1.4 -n shop --format cyclonedx
  kubectl scanner sbom shop/web:1.4 -n shop --format sarif --file web.sarif`,
		ValidArgsFunction: s.completeImages,
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(documents, format) {
				return fmt.Errorf("--format: %q is none of %s", format, strings.Join(documents, ", "))
			}
			return s.sbom(c.Context(), args[0], format, file)
		},
	}
	c.Flags().StringVar(&format, "format", documents[0], "one of "+strings.Join(documents, ", "))
	c.Flags().StringVarP(&file, "file", "f", "", "write to this file, which exists only if it is complete")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(documents, cobra.ShellCompDirectiveNoFileComp))
	return s.requiresConnection(c, own("imagescans", "", "get", "list"))
}

func (s *session) sbom(ctx context.Context, word, format, file string) error {
	scans, err := s.selectImages(ctx, word)
	if err != nil {
		return err
	}
	for i := range scans {
		if scans[i].Spec.Digest != scans[0].Spec.Digest || scans[i].Spec.Platform != scans[0].Spec.Platform {
			return fmt.Errorf("%q is several images: name one by its ImageScan, %s or %s", word, scans[0].Name, scans[i].Name)
		}
	}
	api, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	body, err := openDocument(ctx, api, scans, format)
	if err != nil {
		return err
	}
	defer body.Close()
	if file == "" {
		_, err = io.Copy(s.Streams.Out, body)
		return err
	}
	return writeFile(file, body)
}

// openDocument returns a document of the first ImageScan that has it. Several are of the same image, and one may be of an engine without SBOMs, or
// count in a credential scope in which the image was cataloged without this format.
func openDocument(ctx context.Context, api *connect.Connection, scans []v1alpha1.ImageScan, format string) (io.ReadCloser, error) {
	var refused error
	for i := range scans {
		response, err := requestDocument(ctx, api, &scans[i], format)
		if connect.IsReason(err, restv1.ReasonNotScanned) || connect.IsReason(err, restv1.ReasonFormatNotStored) {
			refused = errors.Join(refused, fmt.Errorf("ImageScan %s: %w", scans[i].Name, err))
			continue
		}
		if err != nil {
			return nil, err
		}
		return decompress(response)
	}
	return nil, refused
}

func requestDocument(ctx context.Context, api *connect.Connection, scan *v1alpha1.ImageScan, format string) (*http.Response, error) {
	switch format {
	case documentCycloneDX:
		return api.GetCycloneDX(ctx, scan.Namespace, scan.Name, &restv1.GetCycloneDXParams{})
	case documentOpenVEX:
		return api.GetOpenVEX(ctx, scan.Namespace, scan.Name, &restv1.GetOpenVEXParams{})
	case documentSARIF:
		return api.GetSARIF(ctx, scan.Namespace, scan.Name, &restv1.GetSARIFParams{})
	}
	return api.GetSBOM(ctx, scan.Namespace, scan.Name, &restv1.GetSBOMParams{Format: ptr.To(restv1.SBOMFormat(format)), AcceptEncoding: ptr.To("zstd")})
}

// document is a response's body with its decoder.
type document struct {
	io.Reader
	close func()
}

// Close implements io.Closer.
func (d document) Close() error { d.close(); return nil }

// decompress returns the body of a response. An SBOM is sent as it is stored, about ten times smaller.
func decompress(response *http.Response) (io.ReadCloser, error) {
	if response.Header.Get("Content-Encoding") != "zstd" {
		return response.Body, nil
	}
	decoder, err := zstd.NewReader(response.Body)
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return document{Reader: decoder, close: func() { decoder.Close(); _ = response.Body.Close() }}, nil
}

// writeFile writes a file. After an error, a file that was there before is unchanged.
func writeFile(name string, content io.Reader) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	_, err = io.Copy(temporary, content)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
