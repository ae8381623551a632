package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/vexfile"
)

// maxVEXBytes bounds an OpenVEX document. A statement takes about half a KiB.
const maxVEXBytes = 16 << 20

// exceptFlags are the flags of "except".
type exceptFlags struct {
	status, justification, reason, action, until, name, fromVEX string
	packages, images                                            []string
	cluster, dryRun, yes, overwrite                             bool
}

func (s *session) exceptCommand() *cobra.Command {
	var f exceptFlags
	c := &cobra.Command{
		Use: "except [ID...]", Short: "Record that findings need no action, why, and until when",
		Long: `Record that findings need no action, why, and until when, as a VulnerabilityException.

The API server checks the exception first, without creating it (server-side dry run). Then the command shows which findings it will
suppress, and asks. Without a terminal, --yes is needed.

The status is not_affected with --justification, affected with --action, and under_investigation without both. With --from-vex, there is one
exception for each statement of an OpenVEX document. Statements about something else than images and packages are refused, since an
exception for them would suppress more than they say.`,
		Example: `  kubectl scanner except CVE-2016-2781 -n shop --reason "no image runs chroot" --justification vulnerable_code_not_in_execute_path
  kubectl scanner except CVE-2026-1234 -n shop --reason "waits for the vendor" --until 30d --package openssl
  kubectl scanner except -n shop --from-vex web.openvex.json --dry-run -o yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return s.except(c.Context(), args, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.reason, "reason", "", "why the findings need no action, for those who read it in a year")
	flags.StringVar(&f.until, "until", "", "when the exception ends: a day (2027-01-31, included, UTC), a time (RFC 3339), or a duration (30d, 12h)")
	flags.StringVar(&f.status, "status", "", "not_affected, affected, fixed or under_investigation, as OpenVEX defines them")
	flags.StringVar(&f.justification, "justification", "", "why the status is not_affected, as OpenVEX defines it")
	flags.StringVar(&f.action, "action", "", "what is done about the risk, with the status affected")
	flags.StringArrayVar(&f.packages, "package", nil, "only in this package, NAME or NAME@VERSION; globs; may be repeated")
	flags.StringArrayVar(&f.images, "image", nil, "only in these images, a glob of repository, reference or repository@digest; may be repeated")
	flags.StringVar(&f.name, "name", "", "name of the exception (default: the first ID)")
	flags.StringVar(&f.fromVEX, "from-vex", "", "OpenVEX document whose statements become exceptions")
	flags.BoolVar(&f.cluster, "cluster", false, "in all namespaces: a ClusterVulnerabilityException")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only check and show")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.overwrite, "overwrite", false, "change exceptions of the same name that are different")
	s.addFormat(c)
	justifications := []string{"component_not_present", "vulnerable_code_not_present", "vulnerable_code_not_in_execute_path",
		"vulnerable_code_cannot_be_controlled_by_adversary", "inline_mitigations_already_exist"}
	_ = c.RegisterFlagCompletionFunc("justification", cobra.FixedCompletions(justifications, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"not_affected", "affected", "fixed", "under_investigation"}, cobra.ShellCompDirectiveNoFileComp))
	s.requiresConnection(c,
		own("vulnerabilityexceptions", "not with --cluster", "create"), own("vulnerabilityexceptions", "if one of this name exists", "get"),
		own("vulnerabilityexceptions", "with --overwrite", "update"),
		permission{verbs: []string{"create", "get", "update"}, group: v1alpha1.GroupVersion.Group, resource: "clustervulnerabilityexceptions", scope: inCluster, when: "with --cluster"},
		own("imagescans", "to show what it suppresses", "list"))
	return c
}

func (s *session) except(ctx context.Context, ids []string, f exceptFlags) error {
	format, err := s.checkFormat()
	if err != nil {
		return err
	}
	writes := !format.IsForPeople()
	if writes && (format == output.FormatCSV || !f.dryRun) {
		return fmt.Errorf("-o %s: exceptions are written as manifests with --dry-run and -o yaml or -o json only", format)
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	drafts, err := s.drafts(ids, f)
	if err != nil {
		return err
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	if f.cluster {
		namespace = ""
	}
	all, pending, err := s.prepareAll(ctx, cluster, namespace, drafts, f)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		if err := s.preview(ctx, namespace, pending); err != nil {
			return err
		}
	}
	if writes {
		// A repository of manifests needs those that the cluster has already, too.
		return s.writeManifests(all)
	}
	if len(pending) == 0 {
		return nil
	}
	if f.dryRun {
		s.remark("Nothing was changed (--dry-run).")
		return nil
	}
	if !f.yes {
		if err := s.confirm(); err != nil {
			return err
		}
	}
	for _, ch := range pending {
		if err := ch.apply(ctx, cluster); err != nil {
			return err
		}
		fmt.Fprintf(s.results(), "%s %s\n", ch.title(), ch.verb)
	}
	return nil
}

// prepareAll prepares each draft. pending are those that the cluster does not have yet.
func (s *session) prepareAll(ctx context.Context, cluster client.Client, namespace string, drafts []vexfile.Draft, f exceptFlags) (all, pending []change, err error) {
	for _, draft := range drafts {
		ch, err := prepare(ctx, cluster, namespace, draft, f)
		if err != nil {
			return nil, nil, withRoleAdvice(err, "scanner-operator-except")
		}
		all = append(all, ch)
		if ch.verb == "unchanged" {
			s.remark("%s is unchanged", ch.title())
			continue
		}
		pending = append(pending, ch)
	}
	return all, pending, nil
}

// drafts returns the exceptions that the user wants.
func (s *session) drafts(ids []string, f exceptFlags) ([]vexfile.Draft, error) {
	var expires *metav1.Time
	if f.until != "" {
		end, err := parseUntil(f.until, s.Clock.Now())
		if err != nil {
			return nil, err
		}
		expires = &metav1.Time{Time: end}
	}
	if f.fromVEX != "" {
		if len(ids) > 0 || f.reason != "" || f.status != "" || f.action != "" || f.name != "" || len(f.packages)+len(f.images) > 0 {
			return nil, errors.New("--from-vex: only --until, --justification, --cluster, --dry-run, --overwrite and --yes may be given with it; the document has the rest")
		}
		text, err := readAll(f.fromVEX, s.Streams.In)
		if err != nil {
			return nil, fmt.Errorf("--from-vex: %w", err)
		}
		return vexfile.Drafts(text, vexfile.Defaults{Justification: v1alpha1.VEXJustification(f.justification), Expires: expires})
	}
	if len(ids)+len(f.packages) == 0 {
		return nil, errors.New("name a vulnerability, such as CVE-2016-2781, or --package")
	}
	if f.reason == "" {
		return nil, errors.New("--reason is needed: why do the findings need no action?")
	}
	spec := v1alpha1.ExceptionSpec{
		Status: statusOf(f), Justification: v1alpha1.VEXJustification(f.justification), Reason: f.reason, Action: f.action, Vulnerabilities: ids, Images: f.images,
		ExpirationTime: expires,
	}
	for _, one := range f.packages {
		name, version, _ := cutLast(one, "@")
		spec.Packages = append(spec.Packages, v1alpha1.PackageSelector{Name: name, Version: version})
	}
	name := f.name
	if name == "" {
		name = vexfile.Name(append(slices.Clone(ids), f.packages...)[0])
	}
	return []vexfile.Draft{{Name: name, Spec: spec}}, nil
}

func statusOf(f exceptFlags) v1alpha1.VEXStatus {
	switch {
	case f.status != "":
		return v1alpha1.VEXStatus(f.status)
	case f.justification != "":
		return v1alpha1.VEXNotAffected
	case f.action != "":
		return v1alpha1.VEXAffected
	}
	return v1alpha1.VEXUnderInvestigation
}

// cutLast cuts around the last separator. A separator at the start is part of the name: npm's names begin with @.
func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i > 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// readAll reads a file, or in for the name "-". It refuses more than maxVEXBytes.
func readAll(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxVEXBytes+1))
	if err == nil && len(text) > maxVEXBytes {
		err = fmt.Errorf("the document has more than %d MiB", maxVEXBytes>>20)
	}
	return text, err
}

// parseUntil returns the end of an exception. A day is included.
func parseUntil(text string, now time.Time) (time.Time, error) {
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if end, err = time.Parse(time.DateOnly, text); err == nil {
			end = end.AddDate(0, 0, 1)
		}
	}
	if err != nil {
		duration, found := strings.CutSuffix(text, "d")
		if days, atoiErr := strconv.Atoi(duration); found && atoiErr == nil && days < 36500 {
			end, err = now.AddDate(0, 0, days), nil
		} else if d, durationErr := time.ParseDuration(text); durationErr == nil {
			end, err = now.Add(d), nil
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("--until: %q is neither a day (2027-01-31), a time (2027-01-31T12:00:00Z) nor a duration (30d, 12h)", text)
	}
	if !end.After(now) {
		return time.Time{}, fmt.Errorf("--until: %s is over", text)
	}
	return end.UTC().Truncate(time.Second), nil
}

// change is an exception that is about to be created or changed. The API server has accepted it in a dry run.
type change struct {
	object client.Object
	spec   v1alpha1.ExceptionSpec
	// verb is created, changed or unchanged.
	verb string
}

func (ch change) title() string {
	if ch.object.GetNamespace() == "" {
		return "clustervulnerabilityexception/" + ch.object.GetName()
	}
	return "vulnerabilityexception/" + ch.object.GetName()
}

// newException returns the object of a draft; in no namespace, a ClusterVulnerabilityException.
func newException(namespace string, draft vexfile.Draft) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: draft.Name}
	if namespace == "" {
		return &v1alpha1.ClusterVulnerabilityException{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterVulnerabilityException"},
			ObjectMeta: meta, Spec: v1alpha1.ClusterExceptionSpec{ExceptionSpec: draft.Spec},
		}
	}
	return &v1alpha1.VulnerabilityException{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VulnerabilityException"},
		ObjectMeta: meta, Spec: draft.Spec,
	}
}

// specOf returns the specification of an exception, to read or to change.
func specOf(o client.Object) *v1alpha1.ExceptionSpec {
	if cluster, is := o.(*v1alpha1.ClusterVulnerabilityException); is {
		return &cluster.Spec.ExceptionSpec
	}
	return &o.(*v1alpha1.VulnerabilityException).Spec
}

// prepare has the API server check what would be done, without doing it.
func prepare(ctx context.Context, cluster client.Client, namespace string, draft vexfile.Draft, f exceptFlags) (change, error) {
	ch := change{object: newException(namespace, draft), spec: draft.Spec, verb: "created"}
	err := cluster.Create(ctx, ch.object.DeepCopyObject().(client.Object), client.DryRunAll)
	if !apierrors.IsAlreadyExists(err) {
		return ch, err
	}
	existing := newException(namespace, vexfile.Draft{Name: draft.Name})
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(ch.object), existing); err != nil {
		return ch, err
	}
	if equality.Semantic.DeepEqual(*specOf(existing), draft.Spec) {
		ch.verb = "unchanged"
		return ch, nil
	}
	if !f.overwrite {
		return ch, fmt.Errorf("%s exists and is different: give another --name, or --overwrite", ch.title())
	}
	*specOf(existing) = draft.Spec
	ch.object, ch.verb = existing, "changed"
	return ch, cluster.Update(ctx, existing.DeepCopyObject().(client.Object), client.DryRunAll)
}

func (ch change) apply(ctx context.Context, cluster client.Client) error {
	if ch.verb == "changed" {
		return cluster.Update(ctx, ch.object)
	}
	return cluster.Create(ctx, ch.object)
}

// confirm asks on the terminal.
func (s *session) confirm() error {
	if file, is := s.Streams.In.(*os.File); is && !term.IsTerminal(int(file.Fd())) {
		return errors.New("nothing was changed: --yes is needed where nobody can be asked")
	}
	fmt.Fprint(s.warnings(), "Suppress them? [y/N] ")
	answer, err := bufio.NewReader(s.Streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
