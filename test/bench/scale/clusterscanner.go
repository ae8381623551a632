package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Sizes of the measurement of a ClusterScanner.
const (
	teams       = 1000
	podsPerTeam = 5
	// previewTeams is the number of namespaces that a change of the selector takes out and puts back, selectorChanges how often.
	previewTeams    = 20
	selectorChanges = 100
	// labelChanges is how often one namespace leaves and joins by a change of its label.
	labelChanges = 10
	receiverName = "slack"
	// Delays of receivers, much shorter than the defaults, so that a message that should not be sent comes soon.
	teamsGroupWait, teamsGroupInterval = time.Second, 2 * time.Second
	// silence is how long no message must come after the changes of the selector: several times the delays of the receiver.
	silence = 20 * time.Second
)

// Labels of the namespaces. The ClusterScanner selects those with scanLabel, and while previewLabel is excluded, those without it.
const (
	scanLabel    = "bench/scan"
	previewLabel = "bench/preview"
)

// CoverageFigures are the measurements of one way to cover many namespaces: with a Scanner in each, or with one ClusterScanner.
type CoverageFigures struct {
	// Covered is the time from the creation of the first Scanner until every image is scanned. Announced is the time until the last first
	// message has come.
	Covered, Announced time.Duration
	// CPU is the manager's processor time from its start until its work is done.
	CPU time.Duration
	// Requests counts the manager's requests until then, by verb and resource.
	Requests map[string]int
	// Memory is the resident memory in bytes: before any Scanner, after the work, and its peak until then.
	MemoryBefore, MemorySteady, MemoryPeak int64
	// ImageScans is their number. Messages is the number of first messages, Blocks that of the longest. Violations counts exceeded limits of Slack.
	ImageScans, Messages, Blocks, Violations int
}

// ChangeFigures are the measurements of changes of what a ClusterScanner covers.
type ChangeFigures struct {
	// Leaves and Joins are the times from a change of a namespace's label until its ImageScans are gone, or until they are there. Scanned are
	// those until they have results again.
	Leaves, Joins, Scanned []time.Duration
	// SelectorChanges is the time that all changes of the selector took, each until it was effective. CPU is the manager's processor time of them.
	SelectorChanges, SelectorCPU time.Duration
	// Messages is the number of messages that came because of all these changes. MessagesOfNew is the number because of a new namespace after them.
	Messages, MessagesOfNew int
	// MemorySteady and MemoryPeak are the resident memory in bytes after all, and the peak of all.
	MemorySteady, MemoryPeak int64
}

// ClusterFigures compares Scanners with a ClusterScanner in the same namespaces.
type ClusterFigures struct {
	Namespaces, Pods          int
	Scanners, ClusterScanner  CoverageFigures
	Changes                   ChangeFigures
	PreviewNamespaces, Images int
}

// MeasureClusterScanner measures many namespaces with a Scanner in each, and then, in a new cluster, the same with one ClusterScanner.
func MeasureClusterScanner(ctx context.Context, options Options) (f ClusterFigures, err error) {
	f.Namespaces, f.Pods, f.PreviewNamespaces, f.Images = teams, teams*podsPerTeam, previewTeams, distinctImages
	err = withTeams(ctx, options, func(c *cluster) (err error) {
		f.Scanners, err = c.coverAll(ctx, c.createTeamScanners, c.teamsCovered)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("a Scanner in each namespace: %w", err)
	}
	err = withTeams(ctx, options, func(c *cluster) (err error) {
		if f.ClusterScanner, err = c.coverAll(ctx, c.createClusterScanner, c.clusterCovered); err != nil {
			return err
		}
		f.Changes, err = c.measureChanges(ctx)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("one ClusterScanner: %w", err)
	}
	return f, nil
}

// withTeams calls measure with a cluster of many namespaces whose pods run, and stops it.
func withTeams(ctx context.Context, options Options, measure func(*cluster) error) (err error) {
	c, err := startCluster(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	options.Progress("%d namespaces with %d pods each are created", teams, podsPerTeam)
	all := make([]int, teams)
	for i := range all {
		all[i] = i
	}
	if err := each(all, func(team int) error { return c.createTeam(ctx, team) }); err != nil {
		return err
	}
	if err := c.allRun(ctx, teams*podsPerTeam); err != nil {
		return err
	}
	return measure(c)
}

// distinctImages is the number of images in all namespaces: one that all of them run, and their own.
const distinctImages = 1 + teams*(podsPerTeam-1)

// teamImage returns the image of a pod. Of the five images of a namespace, the first runs in all namespaces, one is clean, and two have
// findings that no other image has.
func teamImage(team, pod int) string {
	name := fmt.Sprintf("%s/%s-service-%d", teamName(team), []string{"", "clean", "vulnerable", "evolving", "evolving"}[pod], pod)
	if pod == 0 {
		name = "platform/vulnerable-proxy"
	}
	return "registry.example.com/" + name + ":1.14"
}

func (c *cluster) createTeam(ctx context.Context, team int) error {
	labels := map[string]string{scanLabel: "yes"}
	if team < previewTeams {
		labels[previewLabel] = "yes"
	}
	if err := c.server.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teamName(team), Labels: labels}}); err != nil {
		return err
	}
	for i := range podsPerTeam {
		template := deployment{namespace: teamName(team), name: fmt.Sprintf("service-%02d", i), image: teamImage(team, i), index: team + i}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: template.namespace, Name: template.name}, Spec: template.spec(i)}
		if err := c.server.Create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func teamReceiver() v1alpha1.Receiver {
	return v1alpha1.Receiver{
		Name:      receiverName,
		Slack:     &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: receiverName, Key: "url"}},
		GroupWait: &metav1.Duration{Duration: teamsGroupWait}, GroupInterval: &metav1.Duration{Duration: teamsGroupInterval},
	}
}

// createTeamScanners creates a Scanner with a receiver in each namespace. It returns the number of expected first messages.
func (c *cluster) createTeamScanners(ctx context.Context) (messages int, err error) {
	for i := range teams {
		if err := c.server.Create(ctx, c.webhookSecret(teamName(i))); err != nil {
			return 0, err
		}
		scanner := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: teamName(i), Name: scannerName}}
		scanner.Spec.Backend.Type, scanner.Spec.Notifications = v1alpha1.BackendGrype, []v1alpha1.Receiver{teamReceiver()}
		if err := c.server.Create(ctx, scanner); err != nil {
			return 0, err
		}
	}
	return teams, nil
}

func (c *cluster) teamsCovered(ctx context.Context) error {
	var scanners v1alpha1.ScannerList
	if err := c.server.List(ctx, &scanners); err != nil {
		return err
	}
	for _, s := range scanners.Items {
		if s.Status.Images.Scanned != podsPerTeam {
			return fmt.Errorf("%s: %+v, expected %d images scanned", s.Namespace, s.Status.Images, podsPerTeam)
		}
	}
	return nil
}

// createClusterScanner creates a ClusterScanner with a receiver for all namespaces. It returns the number of expected first messages.
func (c *cluster) createClusterScanner(ctx context.Context) (messages int, err error) {
	if err := c.server.Create(ctx, c.webhookSecret(systemNamespace)); err != nil {
		return 0, err
	}
	scanner := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: scannerName}}
	scanner.Spec.NamespaceSelector = selectorOf(true)
	scanner.Spec.Backend.Type = v1alpha1.BackendGrype
	scanner.Spec.Notifications = []v1alpha1.ClusterReceiver{{Receiver: teamReceiver()}}
	return 1, c.server.Create(ctx, scanner)
}

// selectorOf returns the selector with or without the preview namespaces.
func selectorOf(withPreview bool) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{scanLabel: "yes"}}
	if !withPreview {
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: previewLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	}
	return selector
}

func (c *cluster) clusterCovered(ctx context.Context) error { return c.clusterCovers(ctx, teams) }

// clusterCovers returns an error unless the ClusterScanner covers a number of namespaces and has scanned all their images.
func (c *cluster) clusterCovers(ctx context.Context, namespaces int) error {
	var scanner v1alpha1.ClusterScanner
	if err := c.server.Get(ctx, client.ObjectKey{Name: scannerName}, &scanner); err != nil {
		return err
	}
	images := int32(1 + namespaces*(podsPerTeam-1))
	if s := scanner.Status; int(s.Namespaces.Covered) != namespaces || s.Images.Total != images || s.Images.Scanned != images {
		return fmt.Errorf("%+v, %+v, expected %d images of %d namespaces scanned", s.Namespaces, s.Images, images, namespaces)
	}
	return nil
}

// clusterSelects returns an error unless the status of the ClusterScanner has a number of covered namespaces.
func (c *cluster) clusterSelects(ctx context.Context, namespaces int) error {
	var scanner v1alpha1.ClusterScanner
	if err := c.server.Get(ctx, client.ObjectKey{Name: scannerName}, &scanner); err != nil {
		return err
	}
	if counts := scanner.Status.Namespaces; int(counts.Covered) != namespaces {
		return fmt.Errorf("%+v, expected %d namespaces covered", counts, namespaces)
	}
	return nil
}

// coverAll starts notifier and manager, creates the Scanners and waits until all images are scanned, announced, and the manager rests.
func (c *cluster) coverAll(ctx context.Context, create func(context.Context) (int, error), covered func(context.Context) error) (f CoverageFigures, err error) {
	flags, err := c.startNotifier(ctx)
	if err != nil {
		return f, err
	}
	if err := c.startManager(ctx, flags...); err != nil {
		return f, err
	}
	if f.MemoryBefore, _, err = c.manager.Memory(); err != nil {
		return f, err
	}
	began := time.Now()
	messages, err := create(ctx)
	if err != nil {
		return f, err
	}
	for _, step := range []struct {
		took  *time.Duration
		until func(context.Context) error
	}{{&f.Covered, covered}, {&f.Announced, func(context.Context) error { return c.receivedAtLeast(messages) }}} {
		if err := wait.Eventually(ctx, scannersTimeout, wait.Normally, func(ctx context.Context) error {
			return errors.Join(c.alive(), step.until(ctx))
		}); err != nil {
			return f, err
		}
		*step.took = time.Since(began)
	}
	c.options.Progress("all scanned after %s, announced after %s", f.Covered.Round(time.Second), f.Announced.Round(time.Second))
	_, f.CPU, err = c.waitUntilIdle(ctx)
	if err != nil {
		return f, err
	}
	if f.MemorySteady, f.MemoryPeak, err = c.manager.Memory(); err != nil {
		return f, err
	}
	requests, err := c.requests(c.manager, began, time.Now())
	f.Requests = byVerb(requests)
	all, violations := c.slack.received()
	f.Messages, f.Violations = len(all), violations
	for _, m := range all {
		f.Blocks = max(f.Blocks, m.blocks)
	}
	for _, m := range notFirst(all) {
		c.options.Progress("a message that is not the first one of its Scanner:\n%s", m.text)
	}
	// The whole takes long. This line is what remains if it is interrupted.
	c.options.Progress("processor time %s, memory at its peak %s, then %s; first messages: %d of at most %d blocks",
		f.CPU, mebibytes(f.MemoryPeak), mebibytes(f.MemorySteady), f.Messages, f.Blocks)
	f.ImageScans = teams * podsPerTeam
	return f, errors.Join(err, c.hasImageScans(ctx, "", f.ImageScans, true))
}

// notFirst returns the messages that are not summaries of a first scan, or that came before.
func notFirst(all []message) (others []message) {
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.text] || !strings.Contains(m.text, "First scan of ") {
			others = append(others, m)
		}
		seen[m.text] = true
	}
	return others
}

func (c *cluster) alive() error { return errors.Join(c.manager.Alive(), c.notifier.Alive()) }

func (c *cluster) receivedAtLeast(messages int) error {
	if all, _ := c.slack.received(); len(all) < messages {
		return fmt.Errorf("%d messages came, expected %d", len(all), messages)
	}
	return nil
}

// hasImageScans returns an error unless a namespace (empty: all together) has a number of ImageScans; with scanned, only those with a result count.
func (c *cluster) hasImageScans(ctx context.Context, namespace string, number int, scanned bool) error {
	var scans v1alpha1.ImageScanList
	if err := c.server.List(ctx, &scans, client.InNamespace(namespace)); err != nil {
		return err
	}
	isMissing := func(s v1alpha1.ImageScan) bool { return scanned && s.Status.Phase != v1alpha1.PhaseScanned }
	if found := len(slices.DeleteFunc(scans.Items, isMissing)); found != number {
		return fmt.Errorf("%s has %d ImageScans, expected %d", namespace, found, number)
	}
	return nil
}

// measureChanges lets namespaces leave and join a ClusterScanner that covers all, by their labels and by its selector.
func (c *cluster) measureChanges(ctx context.Context) (f ChangeFigures, err error) {
	before, _ := c.slack.received()
	for i := range labelChanges {
		if err := c.measureLabel(ctx, teamName(teams-1-i), &f); err != nil {
			return f, err
		}
	}
	c.options.Progress("labels changed; the selector is changed %d times", selectorChanges)
	if err := c.measureSelector(ctx, &f); err != nil {
		return f, err
	}
	if err := sleep(ctx, silence); err != nil {
		return f, err
	}
	after, _ := c.slack.received()
	f.Messages = len(after) - len(before)
	for _, m := range after[len(before):] {
		c.options.Progress("a message that should not be there:\n%s", m.text)
	}
	// The receiver works still: a namespace that is new is announced.
	if err := c.createTeam(ctx, teams); err != nil {
		return f, err
	}
	err = wait.Eventually(ctx, waitTimeout, wait.Normally, func(context.Context) error {
		return errors.Join(c.alive(), c.receivedAtLeast(len(after)+1))
	})
	if err != nil {
		return f, fmt.Errorf("a new namespace is not announced: %w", err)
	}
	if err := sleep(ctx, silence); err != nil {
		return f, err
	}
	all, _ := c.slack.received()
	f.MessagesOfNew = len(all) - len(after)
	f.MemorySteady, f.MemoryPeak, err = c.manager.Memory()
	return f, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// measureLabel removes the label of a namespace and sets it again.
func (c *cluster) measureLabel(ctx context.Context, namespace string, f *ChangeFigures) error {
	for _, label := range []string{"no", "yes"} {
		changed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, scanLabel, label))
		began := time.Now()
		if err := c.server.Patch(ctx, changed, patch); err != nil {
			return err
		}
		if label == "no" {
			if err := c.measureUntil(ctx, &f.Leaves, began, namespace, 0, false); err != nil {
				return err
			}
			continue
		}
		if err := c.measureUntil(ctx, &f.Joins, began, namespace, podsPerTeam, false); err != nil {
			return err
		}
		if err := c.measureUntil(ctx, &f.Scanned, began, namespace, podsPerTeam, true); err != nil {
			return err
		}
	}
	return nil
}

// measureUntil adds the time since began until a namespace has a number of ImageScans.
func (c *cluster) measureUntil(ctx context.Context, all *[]time.Duration, began time.Time, namespace string, number int, scanned bool) error {
	err := wait.Eventually(ctx, time.Minute, wait.Often, func(ctx context.Context) error {
		return errors.Join(c.alive(), c.hasImageScans(ctx, namespace, number, scanned))
	})
	*all = append(*all, time.Since(began))
	return err
}

// measureSelector changes the selector so that the preview namespaces leave, join, leave, and so on. Each change is effective before the next.
func (c *cluster) measureSelector(ctx context.Context, f *ChangeFigures) error {
	cpu, err := c.manager.CPU()
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range selectorChanges {
		withPreview := i%2 == 1
		var scanner v1alpha1.ClusterScanner
		if err := c.server.Get(ctx, client.ObjectKey{Name: scannerName}, &scanner); err != nil {
			return err
		}
		before := scanner.DeepCopy()
		scanner.Spec.NamespaceSelector = selectorOf(withPreview)
		if err := c.server.Patch(ctx, &scanner, client.MergeFrom(before)); err != nil {
			return err
		}
		number, covered := 0, teams-previewTeams
		if withPreview {
			number, covered = podsPerTeam, teams
		}
		changed := 0 // namespaces in which the change is effective
		err := wait.Eventually(ctx, scannersTimeout, wait.Often, func(ctx context.Context) error {
			for ; changed < previewTeams; changed++ {
				if err := c.hasImageScans(ctx, teamName(changed), number, withPreview); err != nil {
					return errors.Join(c.alive(), err)
				}
			}
			return errors.Join(c.alive(), c.clusterSelects(ctx, covered))
		})
		if err != nil {
			return fmt.Errorf("change %d of the selector: %w", i+1, err)
		}
		if (i+1)%10 == 0 {
			c.options.Progress("%d changes in %s", i+1, time.Since(began).Round(time.Second))
		}
	}
	f.SelectorChanges = time.Since(began)
	after, err := c.manager.CPU()
	f.SelectorCPU = after - cpu
	return err
}
