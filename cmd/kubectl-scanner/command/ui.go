package command

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
)

// uiTokenSeconds is how long a requested token of a ServiceAccount should be valid, since a session of the web UI ends with its token.
const uiTokenSeconds = int64(time.Hour / time.Second)

func (s *session) uiCommand() *cobra.Command {
	var noBrowser bool
	c := &cobra.Command{
		Use: "ui", Short: "Open the web UI, signed in as yourself", Args: cobra.NoArgs,
		Long: `Open the web UI, signed in as yourself.

The command sends your token to the operator, and gets a code in exchange. The address that it opens has the code, which signs in once and within
60 seconds, and never the token. A browser that is signed in already keeps its session: sign out there first to be somebody else.

Without --server, the web UI is reached by a port-forward, which lasts until you interrupt the command. The browser warns then, since the
certificate is of the operator's own authority. With -n, the UI shows that namespace.`,
		Example: `  kubectl scanner ui
  kubectl scanner ui -n shop --server https://scanner.example.com --no-browser`,
		RunE: func(c *cobra.Command, _ []string) error { return s.ui(c.Context(), !noBrowser) },
	}
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address and open no browser")
	return s.requiresConnection(c, own("imagescans", "to see anything", "list"))
}

func (s *session) ui(ctx context.Context, browse bool) error {
	s.tokenSeconds = uiTokenSeconds
	api, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	address, err := s.signInAddress(ctx, api)
	if err != nil {
		return err
	}
	if browse {
		if err := s.Browse(ctx, address); err != nil {
			s.remark("No browser could be opened: %v", err)
			browse = false
		}
	}
	if !browse {
		s.remark("Open this address within 60 seconds. It works once:")
		fmt.Fprintln(s.results(), address)
	}
	if api.Ended == nil {
		return nil
	}
	s.remark("The web UI is at %s until you press Ctrl-C. The browser warns, since the certificate is of the operator's own authority.", api.URL)
	select {
	case <-ctx.Done():
		return nil
	case err := <-api.Ended:
		return fmt.Errorf("the port-forward has ended, as it does when the operator is updated; run the command again: %w", err)
	}
}

// signInAddress returns an address of the web UI that signs in once.
func (s *session) signInAddress(ctx context.Context, api *connect.Connection) (string, error) {
	answer, err := api.CreateSessionCodeWithResponse(ctx)
	if err != nil {
		return "", err
	}
	if answer.JSON200 == nil {
		return "", unexpected(answer.Status())
	}
	address, err := url.Parse(api.URL)
	if err != nil {
		return "", err
	}
	address.Path = answer.JSON200.Path
	if err := checkUI(ctx, api, address.String()); err != nil {
		return "", err
	}
	if namespace := ptr.Deref(s.kube.Namespace, ""); namespace != "" {
		address.RawQuery = url.Values{"namespace": {namespace}}.Encode()
	}
	address.Fragment = "code=" + answer.JSON200.Code
	return address.String(), nil
}

// checkUI sends a request for the web UI. It returns an error if there is no web UI at an address.
func checkUI(ctx context.Context, api *connect.Connection, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	// A proxy may let only requests with a token pass.
	request.Header.Set("Authorization", "Bearer "+api.Token)
	response, err := api.HTTP.Do(request)
	if connect.IsReason(err, restv1.ReasonNotFound) {
		return fmt.Errorf("the operator serves no web UI at %s: ui.enabled is false in its configuration", address)
	}
	if err != nil {
		return err
	}
	return response.Body.Close()
}
