package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/parity"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// teamState is what a team's namespace, its Scanner, the store and the engine have at the end of a run.
type teamState struct {
	namespace string
	// running are the distinct images of the team's pods: a digest, or a reference while the node cannot pull the image. They come from the
	// pods alone.
	running map[string]bool
	// scans are the ImageScans, by digest.
	scans map[string]scanState
	// images and findings are the counts in the status of the Scanner.
	images   v1alpha1.ImageCounts
	findings v1alpha1.FindingCounts
	// stored are the findings in the store.
	stored []scenario.ImageFindings
	// engine are the matches that grype prints, by digest. Only scanned images have any.
	engine map[string][]parity.Match
	// unscannable are the running images that cannot be scanned.
	unscannable map[string]bool
	// before are the findings that were announced to the team before the first fault, in the form of messages.
	before []string
}

// reasonNotPulled is the reason of an image that its node could not pull. The Scanner counts it; there is no ImageScan without a digest.
const reasonNotPulled = "NotPulled"

// scanState is the state of an image.
type scanState struct {
	phase  v1alpha1.ImageScanPhase
	reason string
	// attempts is the number of failed attempts since the last success. retry is true if another one is planned.
	attempts int32
	retry    bool
}

// readState reads the state of a team, without the engine's matches.
func readState(ctx context.Context, env *scenario.Environment, namespace string) (*teamState, error) {
	state := &teamState{namespace: namespace, running: map[string]bool{}, scans: map[string]scanState{}, engine: map[string][]parity.Match{}}
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		for _, id := range imagesOf(&pods.Items[i]) {
			state.running[id] = true
		}
	}
	scans, err := env.ImageScans(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for i := range scans {
		one := scanState{phase: scans[i].Status.Phase, attempts: scans[i].Status.Attempts, retry: scans[i].Status.NextAttemptTime != nil}
		if ready := meta.FindStatusCondition(scans[i].Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			one.reason = ready.Reason
		}
		state.scans[scans[i].Spec.Digest] = one
	}
	scanner, err := env.Scanner(ctx, namespace)
	if err != nil {
		return nil, err
	}
	state.images, state.findings = scanner.Status.Images, scanner.Status.Findings
	state.stored, err = env.Findings(ctx, namespace)
	return state, err
}

// imagesOf returns the images of a pod's containers: the digest that the node reports, or else the reference.
func imagesOf(pod *corev1.Pod) (ids []string) {
	for _, status := range pod.Status.ContainerStatuses {
		if _, digest, found := strings.Cut(status.ImageID, "@"); found {
			ids = append(ids, digest)
		} else {
			ids = append(ids, status.Image)
		}
	}
	return ids
}

// coverage counts the running images of all teams, each by exactly one state.
type coverage struct {
	running, scanned, failed, waiting int
	// reasons count the images that are not scanned.
	reasons map[string]int
}

// checkCoverage counts the running images, and returns an error for each that is in no state or in an unexplained one, and for each Scanner whose
// numbers are others.
func checkCoverage(teams []*teamState) (c coverage, errs []error) {
	c.reasons = map[string]int{}
	for _, t := range teams {
		var want v1alpha1.ImageCounts
		for _, id := range slices.Sorted(maps.Keys(t.running)) {
			c.running++
			want.Total++
			scan, known := t.scans[id]
			reason := scan.reason
			switch {
			case scan.phase == v1alpha1.PhaseScanned:
				c.scanned++
				want.Scanned++
				continue
			case !known && !strings.HasPrefix(id, "sha256:"):
				reason = reasonNotPulled
				fallthrough
			case scan.phase == v1alpha1.PhaseFailed || scan.attempts > 0: // it counts as failed while it is tried again
				c.failed++
				want.Failed++
				if scan.phase == v1alpha1.PhaseFailed && !scan.retry {
					errs = append(errs, fmt.Errorf("%s: %s has failed, and no other attempt is planned", t.namespace, id))
				}
			case known && scan.phase != "":
				c.waiting++
				want.Pending++
			default:
				errs = append(errs, fmt.Errorf("%s: %s runs and has no state", t.namespace, id))
				continue
			}
			if reason == "" {
				errs = append(errs, fmt.Errorf("%s: %s is %s without a reason", t.namespace, id, scan.phase))
			}
			c.reasons[reason]++
		}
		got := t.images
		got.RecentlyUsed = 0
		if got != want {
			errs = append(errs, fmt.Errorf("%s: the Scanner counts %+v, the pods run %+v", t.namespace, got, want))
		}
	}
	if c.scanned+c.failed+c.waiting != c.running {
		errs = append(errs, fmt.Errorf("%d scanned, %d failed and %d waiting images are not the %d running ones",
			c.scanned, c.failed, c.waiting, c.running))
	}
	return c, errs
}

// scanned returns the stored findings of the running images that are scanned.
func (t *teamState) scanned() (found []scenario.ImageFindings) {
	for _, img := range t.stored {
		if t.running[img.Digest] && t.scans[img.Digest].phase == v1alpha1.PhaseScanned {
			found = append(found, img)
		}
	}
	return found
}

// checkParity compares each scanned image with the engine, and the numbers of each Scanner with the findings. It returns the number of images and
// findings that are equal.
func checkParity(teams []*teamState) (images, findings int, errs []error) {
	for _, t := range teams {
		found := t.scanned()
		for _, img := range found {
			want, compared := t.engine[img.Digest]
			if !compared {
				errs = append(errs, fmt.Errorf("%s: %s was not compared with the engine", t.namespace, img.Digest))
				continue
			}
			if diff := cmp.Diff(want, parity.Expand(img.Findings)); diff != "" {
				errs = append(errs, fmt.Errorf("%s: findings of %s (-grype +operator):\n%s", t.namespace, img.Digest, diff))
				continue
			}
			images++
			findings += len(img.Findings)
		}
		want := countsOf(scenario.AllLines(found))
		got := t.findings
		got.Fixable, got.KnownExploited = 0, 0 // they count the same findings again
		if got != want {
			errs = append(errs, fmt.Errorf("%s: the Scanner counts the findings %+v, the engine finds %+v", t.namespace, got, want))
		}
	}
	return images, findings, errs
}

// countsOf counts findings by severity, as a Scanner does.
func countsOf(lines []scenario.Line) (counts v1alpha1.FindingCounts) {
	for _, line := range lines {
		switch strings.ToLower(line.Severity) {
		case "critical":
			counts.Critical++
		case "high":
			counts.High++
		case "medium":
			counts.Medium++
		case "low":
			counts.Low++
		case "negligible":
			counts.Negligible++
		default:
			counts.Unknown++
		}
	}
	return counts
}

// checkAnnounced compares what was announced to a team, before the first fault and by the messages in their order, with what is present now. Repositories
// with an image that is not scanned are left out: what is present there is not known. It returns the number of findings that are present and
// announced.
func checkAnnounced(teams []*teamState, messages []ledger.Message) (present int, errs []error) {
	for _, t := range teams {
		unknown := t.unknownRepositories()
		announced := map[string]bool{}
		for _, line := range t.before {
			announced[line] = true
		}
		for _, m := range messages {
			if m.Webhook != t.namespace {
				continue
			}
			for _, name := range m.Names {
				change, line, _ := strings.Cut(name, " ")
				announced[line] = v1alpha1.Change(change) != v1alpha1.ChangeFixed
			}
		}
		now := map[string]bool{}
		for _, line := range scenario.AnnouncedLines(t.scanned()) {
			now[line.String()] = true
		}
		for _, line := range slices.Sorted(maps.Keys(merged(announced, now))) {
			switch {
			case unknown[repositoryIn(line)]:
			case now[line] && !announced[line]:
				errs = append(errs, fmt.Errorf("%s: present and not announced: %s", t.namespace, line))
			case !now[line] && announced[line]:
				errs = append(errs, fmt.Errorf("%s: announced and not present: %s", t.namespace, line))
			case now[line]:
				present++
			}
		}
	}
	return present, errs
}

func merged(a, b map[string]bool) map[string]bool {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// unknownRepositories returns the repositories of running images without a result.
func (t *teamState) unknownRepositories() map[string]bool {
	unknown := map[string]bool{}
	for _, img := range t.stored {
		if t.running[img.Digest] && t.scans[img.Digest].phase != v1alpha1.PhaseScanned {
			for _, repository := range img.Repositories() {
				unknown[repository] = true
			}
		}
	}
	return unknown
}

// settled returns an error as long as a team's images are not all matched with the data that was published last, except those that cannot be
// scanned.
func (t *teamState) settled(built time.Time) error {
	var errs []error
	version := built.UTC().Format(time.RFC3339) + " "
	for id := range t.running {
		if scan, known := t.scans[id]; known && scan.phase != v1alpha1.PhaseScanned && !t.unscannable[id] {
			errs = append(errs, fmt.Errorf("%s: %s is %s (%s)", t.namespace, id, scan.phase, scan.reason))
		}
	}
	for _, img := range t.scanned() {
		if !strings.HasPrefix(img.DataVersion, version) {
			errs = append(errs, fmt.Errorf("%s: %s was matched with %s, want %s", t.namespace, img.Digest, img.DataVersion, version))
		}
	}
	if len(t.scanned())+len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: no image is scanned", t.namespace))
	}
	return errors.Join(errs...)
}
