// Package command implements "kubectl scanner" and its subcommands.
//
// A command reads ImageScans and Scanners from the Kubernetes API, and findings from the operator's REST API, both as the caller. What it prints
// as a result goes to the standard output, and what people should know about the result goes to the standard error. A result that may lack
// something says so: images that are pending, failed or not analyzed are never shown as clean.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/terminal"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// Exit statuses.
const (
	exitError = 1
	// exitMatch is the status when a finding matches --fail-on.
	exitMatch = 2
)

// docs is where the documentation is.
const docs = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/"

// Environment variables that set flags.
const (
	envServer            = "KUBECTL_SCANNER_SERVER"
	envOperatorNamespace = "KUBECTL_SCANNER_OPERATOR_NAMESPACE"
)

// App is the plugin.
type App struct {
	Streams genericiooptions.IOStreams
	Clock   clock.PassiveClock
	// Browse opens an address in the user's browser. It does not wait until the browser is closed.
	Browse func(ctx context.Context, address string) error
}

// Run runs a command line and returns the exit status: 0, 1 after an error, or 2 if a finding matches --fail-on.
func (a App) Run(ctx context.Context, args []string) int {
	root := a.newSession().root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var match *matchError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &match):
		fmt.Fprintln(a.warnings(), match)
		return exitMatch
	default:
		fmt.Fprintln(a.warnings(), "Error:", err)
		return exitError
	}
}

// warnings returns the standard error, on which nothing controls the terminal.
func (a App) warnings() terminal.Writer { return terminal.Writer{To: a.Streams.ErrOut} }

// session is one run of the plugin: its flags, and the connections that they describe.
type session struct {
	App
	kube *genericclioptions.ConfigFlags
	// server, serverCA, operatorNamespace and serviceAccount are the flags that say how to reach the REST API.
	server, serverCA, operatorNamespace, serviceAccount string
	// tokenSeconds is how long a requested token of the service account should be valid; 0 for a short time.
	tokenSeconds int64
	// allNamespaces, format and failOn are flags of those commands that have them.
	allNamespaces  bool
	format, failOn string
	// needs are the permissions of each command, by its name.
	needs map[string][]permission
}

func (a App) newSession() *session {
	s := &session{App: a, kube: genericclioptions.NewConfigFlags(true), needs: map[string][]permission{}}
	// In this plugin, --server is the address of the operator's REST API.
	s.kube.APIServer = nil
	return s
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-scanner",
		Short: "Show which running images have vulnerabilities, and what to do about them",
		Long: `Show which running images have vulnerabilities, and what to do about them.

The Scanner Operator scans the images that run in a cluster. This plugin shows its results with your own permissions: it reads the
operator's objects from the Kubernetes API, and findings from the operator's REST API. It reaches the REST API by a port-forward, or at
the address in --server or the variable ` + envServer + `.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl scanner"},
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetIn(s.Streams.In)
	root.SetOut(s.Streams.Out)
	root.SetErr(s.Streams.ErrOut)
	flags := root.PersistentFlags()
	s.kube.AddFlags(flags)
	flags.StringVar(&s.server, "server", os.Getenv(envServer), "address of the operator's REST API, such as https://scanner.example.com (default: a port-forward)")
	flags.StringVar(&s.serverCA, "server-ca", "", "file with the certificates that verify --server (default: those of the system and of the operator)")
	namespace := connect.DefaultNamespace
	if set := os.Getenv(envOperatorNamespace); set != "" {
		namespace = set
	}
	flags.StringVar(&s.operatorNamespace, "operator-namespace", namespace, "namespace that the operator runs in")
	flags.StringVar(&s.serviceAccount, "service-account", "", "[namespace/]name of a ServiceAccount whose token is requested for the REST API")
	root.AddCommand(
		s.findingsCommand(), s.imageCommand(), s.cveCommand(), s.actionsCommand(), s.sbomCommand(),
		s.whyCommand(), s.statusCommand(), s.rescanCommand(), s.testMessageCommand(), s.exceptCommand(), s.uiCommand(),
		s.versionCommand(),
	)
	return root
}

func (s *session) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the plugin", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.Streams.Out, version.Line("kubectl-scanner"))
			return err
		},
	}
}

// addFormat adds the flag for the format of the output. Other formats than those are refused.
func (s *session) addFormat(c *cobra.Command) {
	c.Flags().StringVarP(&s.format, "output", "o", "", "table, wide, json, yaml or csv")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml", "csv"}, cobra.ShellCompDirectiveNoFileComp))
}

// addAllNamespaces adds the flag -A.
func (s *session) addAllNamespaces(c *cobra.Command) {
	c.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "all namespaces")
}

// namespace returns the namespace of the command, or "" for all.
func (s *session) namespace() (string, error) {
	if s.allNamespaces {
		return "", nil
	}
	namespace, _, err := s.kube.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// cluster returns a client of the Kubernetes API.
func (s *session) cluster() (client.Client, error) {
	config, err := s.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	mapper, err := s.kube.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// connect connects to the REST API. The connection must be closed.
func (s *session) connect(ctx context.Context) (*connect.Connection, error) {
	config, err := s.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	o := connect.Options{Kubernetes: config, Namespace: s.operatorNamespace, Server: s.server, CAFile: s.serverCA, TokenSeconds: s.tokenSeconds}
	if s.serviceAccount != "" {
		namespace, name, found := strings.Cut(s.serviceAccount, "/")
		if !found {
			name = namespace
			if namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace(); err != nil {
				return nil, err
			}
		}
		o.ServiceAccount = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return connect.Open(ctx, o)
}

// write writes a result in the format of the flag.
func (s *session) write(table output.Table, value any) error {
	format, err := output.ParseFormat(s.format)
	if err != nil {
		return err
	}
	return output.Write(s.Streams.Out, format, table, value)
}

// checkFormat refuses a format before anything is requested.
func (s *session) checkFormat() (output.Format, error) { return output.ParseFormat(s.format) }

// remark prints a sentence about the result for people.
func (s *session) remark(format string, args ...any) {
	fmt.Fprintf(s.warnings(), format+"\n", args...)
}

// results returns the standard output, on which nothing controls the terminal. Each write must hold whole characters.
func (s *session) results() terminal.Writer { return terminal.Writer{To: s.Streams.Out} }
