package controllers

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// maxObjectBytes bounds the size of an ImageScan in etcd, as JSON. managedReserve is the part of it reserved for field management, which
// the API server adds.
const (
	maxObjectBytes = 4608
	managedReserve = 1600
)

// minGaps is the number of entries of status.notCovered that shrinkToFit never removes, and minGapBytes what it leaves of each, which is enough for the
// name of a distribution.
const (
	minGaps     = 10
	minGapBytes = 20
)

// Bounds of single texts, in bytes.
const (
	maxWorkloadBytes = 96
	maxIDBytes       = 40
	maxPackageBytes  = 80
	maxVersionBytes  = 48
)

// setResult copies the report of a cataloged image to the status.
func (s *imageScanScope) setResult() {
	status := &s.scan.Status
	status.Packages, status.NotCovered = ptr.To(clamp(s.facts.Catalog.Packages)), gapsOf(s.facts.Report.NotCovered)
	s.setFindings()
	status.Attempts, status.NextAttemptTime, status.FailedSinceTime = 0, nil, nil
}

// originOf returns where the list of packages comes from; nil if the image was cataloged and no attested SBOM is preferred.
func originOf(a store.Origin) *v1alpha1.SBOMOrigin {
	switch {
	case store.IsUpload(a.Policy):
		return &v1alpha1.SBOMOrigin{
			Source: v1alpha1.SBOMFromUpload, Uploader: truncate(a.Uploader, v1alpha1.MaxSignerBytes), UploadTime: &metav1.Time{Time: a.UploadedAt},
			Message: truncate(a.Problem, v1alpha1.MaxProblemBytes),
		}
	case a.Policy != "":
		return &v1alpha1.SBOMOrigin{Source: v1alpha1.SBOMFromAttestation, Signer: truncate(a.Signer, v1alpha1.MaxSignerBytes)}
	case a.Problem != "":
		return &v1alpha1.SBOMOrigin{Source: v1alpha1.SBOMFromImage, Message: truncate(a.Problem, v1alpha1.MaxProblemBytes)}
	}
	return nil
}

// vexOf returns what the attached OpenVEX documents amount to; nil if none are read.
func vexOf(summary *store.VEXSummary) *v1alpha1.ImageVEX {
	if summary == nil {
		return nil
	}
	return &v1alpha1.ImageVEX{Statements: ptr.To(int32(summary.Statements)), Message: truncate(summary.Problem, v1alpha1.MaxProblemBytes)}
}

// describeVEX describes what does not count of the attached OpenVEX documents, as the end of a line. Empty if there is nothing to say.
func describeVEX(vex *v1alpha1.ImageVEX) string {
	if vex == nil || vex.Message == "" {
		return ""
	}
	return "; of the attached OpenVEX: " + vex.Message
}

// describeOrigin describes where the list of packages comes from, as the end of a line. Empty if there is nothing to say.
func describeOrigin(origin *v1alpha1.SBOMOrigin) string {
	switch {
	case origin == nil:
		return ""
	case origin.Source == v1alpha1.SBOMFromAttestation:
		return "; the list of packages is the claim of " + origin.Signer
	case origin.Source == v1alpha1.SBOMFromUpload:
		return "; the list of packages is the claim of " + origin.Uploader + ", who uploaded it " + origin.UploadTime.UTC().Format(time.RFC3339)
	}
	return "; cataloged, since no attested SBOM is accepted: " + origin.Message
}

// setFindings copies the report's finding counts and top findings to the status. Suppressed findings are only counted.
func (s *imageScanScope) setFindings() {
	status, summary := &s.scan.Status, s.facts.Report
	counts, top := countsOf(summary.Counts, summary.Suppressed), topOf(summary.Top)
	// fit may cut TopFindings to fewer entries, which is no change of the result. Only the counts and the remaining top findings are
	// compared.
	if status.Findings == nil || *status.Findings != counts || !equality.Semantic.DeepEqual(status.TopFindings, top[:min(len(status.TopFindings), len(top))]) {
		status.ScanTime = &metav1.Time{Time: summary.MatchedAt}
	}
	status.Findings, status.TopFindings, status.WorstFinding = &counts, top, worstFinding(summary.Top)
	if held := evidence.ImageGaps(status.NotCovered, EngineGaps(s.backend)); len(held) > 0 && status.WorstFinding == "" {
		status.WorstFinding = truncate(describeHeld(held, ""), v1alpha1.MaxWorstBytes)
	}
}

// recount applies the exceptions in force to a result that no action updates: the image is not used, its Scanner is suspended, or its last
// attempt failed.
func (s *imageScanScope) recount() {
	stays := len(s.uses.Last()) == 0 || s.facts.Suspended || s.facts.Failed
	if stays && s.facts.HasResult && s.facts.Report != nil {
		s.setFindings()
	}
}

// imageNames returns the names by which containers run the image or, if none runs it, by which it was last run.
func (s *imageScanScope) imageNames() []exception.Image {
	var names []exception.Image
	add := func(ref image.Reference) {
		if name := (exception.Image{Reference: ref, Digest: s.key.Digest}); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, u := range s.uses.Last() {
		add(u.Image.Reference)
	}
	if len(names) > 0 {
		return names
	}
	for _, text := range s.scan.Spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			add(ref)
		}
	}
	return names
}

// setConditions derives phase, workloads and conditions from what the reconciliation found and did.
func (r *ImageScanReconciler) setConditions(s *imageScanScope) {
	status := &s.scan.Status
	status.Image = shortImageName(s.scan.Spec)
	s.listWorkloads()
	s.setReceiverNotAllowed()
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: s.scan.Generation}
	reconciling := false
	switch {
	case s.failure != nil:
		status.Phase = v1alpha1.PhaseFailed
		ready.Reason, ready.Message = s.failure.Reason, s.failure.Message
	case s.progress != nil:
		status.Phase = s.phaseInProgress()
		ready.Reason, ready.Message = s.progress.Reason, s.progress.Message
		reconciling = s.progress.Reason != v1alpha1.ReasonSuspended && !s.refused && s.progress.Reason != v1alpha1.ReasonUnused
	case status.Phase == v1alpha1.PhaseFailed && status.NextAttemptTime != nil:
		return // waiting for the next attempt: the conditions are up to date
	case status.Findings != nil:
		status.Phase = v1alpha1.PhaseScanned
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonScanned, describeResult(status, EngineGaps(s.backend))
		if status.UnusedSinceTime != nil {
			ready.Message = "no pod uses the image any more: its findings are not counted. " + ready.Message
		}
	case len(status.Conditions) > 0:
		return // nothing new is known, for example after an internal error: the conditions stay
	default:
		status.Phase = v1alpha1.PhasePending
		ready.Reason, reconciling = v1alpha1.ReasonPending, true
	}
	ready.Message = truncate(ready.Message, v1alpha1.MaxMessageBytes)
	resumed := inventory.ReadyReason(s.scan) == v1alpha1.ReasonSuspended && ready.Reason != v1alpha1.ReasonSuspended
	meta.SetStatusCondition(&status.Conditions, ready)
	if resumed {
		// Health notices must not count the time in which the Scanner was suspended as time without a result.
		meta.FindStatusCondition(status.Conditions, ready.Type).LastTransitionTime = metav1.NewTime(r.Clock.Now())
	}
	setWhileTrue(&status.Conditions, v1alpha1.ConditionReconciling, reconciling, ready.Reason, "", s.scan.Generation)
}

// setReceiverNotAllowed sets the condition about receivers that the image's namespace may not use.
func (s *imageScanScope) setReceiverNotAllowed() {
	message := ""
	if names := s.uses.NotAllowed; len(names) > 0 {
		message = fmt.Sprintf("an annotation names %s, without effect: ClusterScanner %s does not let namespace %s use it. "+
			"Remove the annotation, or have the ClusterScanner's spec.notifications[].fromNamespaces or allowedChannels include it",
			strings.Join(names, ", "), s.scanner.GetName(), s.scan.Namespace)
	}
	setWhileTrue(&s.scan.Status.Conditions, v1alpha1.ConditionReceiverNotAllowed, message != "", v1alpha1.ReasonReceiverNotAllowed,
		truncate(message, v1alpha1.MaxMessageBytes), s.scan.Generation)
}

// phaseInProgress returns the phase of an image in progress. It keeps PhaseScanned while an image with a result is scanned again.
func (s *imageScanScope) phaseInProgress() v1alpha1.ImageScanPhase {
	switch {
	case s.scan.Status.Findings != nil:
		return v1alpha1.PhaseScanned
	case s.matching:
		return v1alpha1.PhaseMatching
	case s.progress.Reason == v1alpha1.ReasonCataloging:
		return v1alpha1.PhaseCataloging
	}
	return v1alpha1.PhasePending
}

// listWorkloads sets the workloads that run the image. It changes nothing while the uses of the image are not completely known.
func (s *imageScanScope) listWorkloads() {
	if !s.uses.Complete {
		return
	}
	var names []string
	for _, w := range inventory.WorkloadsOf(s.uses.Running) {
		names = append(names, truncate(w.Kind+"/"+w.Name, maxWorkloadBytes))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	s.scan.Status.WorkloadCount = clamp(len(names))
	s.scan.Status.Workloads = names[:min(len(names), v1alpha1.MaxWorkloads)]
}

// shrinkToFit shortens the status until the object is within its bound in etcd. It cuts in this order: workloads down to three, top findings down
// to one, messages to 128 bytes, all workloads, all top findings, messages to 32 bytes, the end of notCovered (what the engine analyses in
// no image) down to minGaps entries, their texts to minGapBytes from the last to the first, the texts about OpenVEX and the SBOM to 64 bytes, messages to
// 8 bytes, the column about details, the worst finding, the image's short name, the
// texts about the SBOM and OpenVEX to 8 bytes. Counts and conditions always stay.
func shrinkToFit(scan *v1alpha1.ImageScan) {
	status := &scan.Status
	shorten := []func() bool{
		func() bool { return dropLast(&status.Workloads, 3) },
		func() bool { return dropLast(&status.TopFindings, 1) },
		func() bool { return shortenMessages(status.Conditions, 128) },
		func() bool { return dropLast(&status.Workloads, 0) },
		func() bool { return dropLast(&status.TopFindings, 0) },
		func() bool { return shortenMessages(status.Conditions, 32) },
		func() bool { return dropLast(&status.NotCovered, minGaps) },
		func() bool { return shortenLastGap(status.NotCovered) },
		func() bool { return shortenVEX(status.VEX, 64) },
		func() bool { return shortenOrigin(status.SBOM, 64) },
		func() bool { return shortenMessages(status.Conditions, 8) },
		func() bool { return dropText(&status.Columns.Detail) },
		func() bool { return dropText(&status.WorstFinding) },
		func() bool { return dropText(&status.Image) },
		func() bool { return shortenOrigin(status.SBOM, 8) },
		func() bool { return shortenVEX(status.VEX, 8) },
	}
	for _, step := range shorten {
		for sizeOf(scan) > maxObjectBytes-managedReserve && step() {
			continue
		}
	}
}

// sizeOf returns the object's size in bytes as JSON, without field management.
func sizeOf(scan *v1alpha1.ImageScan) int {
	bare := scan.DeepCopy()
	bare.ManagedFields = nil
	text, err := json.Marshal(bare)
	if err != nil {
		return math.MaxInt // unreachable: the type can always be marshalled
	}
	return len(text)
}

func dropLast[T any](list *[]T, least int) bool {
	if len(*list) <= least {
		return false
	}
	*list = (*list)[:len(*list)-1]
	return true
}

func shortenLastGap(gaps []string) bool {
	for i, gap := range slices.Backward(gaps) {
		if len(gap) > minGapBytes {
			gaps[i] = truncate(gap, minGapBytes)
			return true
		}
	}
	return false
}

func dropText(text *string) bool {
	dropped := *text != ""
	*text = ""
	return dropped
}

func shortenOrigin(origin *v1alpha1.SBOMOrigin, limit int) (changed bool) {
	if origin == nil {
		return false
	}
	before := *origin
	origin.Signer, origin.Uploader, origin.Message = truncate(origin.Signer, limit), truncate(origin.Uploader, limit), truncate(origin.Message, limit)
	return *origin != before
}

func shortenVEX(vex *v1alpha1.ImageVEX, limit int) (changed bool) {
	if vex == nil {
		return false
	}
	before := vex.Message
	vex.Message = truncate(vex.Message, limit)
	return vex.Message != before
}

func shortenMessages(conditions []metav1.Condition, limit int) (changed bool) {
	for i := range conditions {
		short := truncate(conditions[i].Message, limit)
		changed = changed || short != conditions[i].Message
		conditions[i].Message = short
	}
	return changed
}

// truncate cuts a text to at most limit bytes, including an ellipsis. The result is one line of valid UTF-8: texts come from registries and
// from tenants' pods, and a text that the API server would alter looks changed at each reconciliation.
func truncate(message string, limit int) string {
	return text.Truncate(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "�")), limit)
}

func countsOf(c finding.Counts, suppressed int) v1alpha1.FindingCounts {
	return v1alpha1.FindingCounts{
		Critical: clamp(c.Critical), High: clamp(c.High), Medium: clamp(c.Medium), Low: clamp(c.Low),
		Negligible: clamp(c.Negligible), Unknown: clamp(c.Unknown), Fixable: clamp(c.Fixable), KnownExploited: clamp(c.KnownExploited),
		Suppressed: clamp(suppressed),
	}
}

func clamp(n int) int32 { return int32(min(n, math.MaxInt32)) }

func topOf(findings []finding.Finding) []v1alpha1.TopFinding {
	var top []v1alpha1.TopFinding
	for _, f := range findings[:min(len(findings), v1alpha1.MaxTopFindings)] {
		fixedIn := ""
		if f.Fixable() {
			fixedIn = f.FixVersions[0]
		}
		top = append(top, v1alpha1.TopFinding{
			ID: truncate(f.ID, maxIDBytes), Severity: f.Severity.String(),
			Package: truncate(f.Package.Name+" "+f.Package.Version, maxPackageBytes), FixedIn: truncate(fixedIn, maxVersionBytes),
		})
	}
	return top
}

// EngineGaps returns the ecosystems that an engine analyses in no image.
func EngineGaps(engine backend.Backend) []string {
	if partial, ok := engine.(backend.PartialCoverage); ok {
		return partial.NotCovered()
	}
	return nil
}

// gapsOf cuts the list of what a report does not cover to the API's bounds. Names of distributions come from images.
func gapsOf(names []string) (gaps []string) {
	for _, name := range names[:min(len(names), v1alpha1.MaxNotCovered)] {
		gaps = append(gaps, truncate(name, v1alpha1.MaxNotCoveredBytes))
	}
	return gaps
}

// describeResult describes in one line what was found in an image and what was not analysed. never is the result of EngineGaps.
func describeResult(status *v1alpha1.ImageScanStatus, never []string) string {
	found := describeFindings(status.Findings)
	held := evidence.ImageGaps(status.NotCovered, never)
	switch {
	case status.Packages != nil && *status.Packages == 0 && found == noFindings:
		found = fmt.Sprintf("nothing is known about the image: %s found no packages in it", status.Engine)
	case len(held) > 0 && found == noFindings:
		found = describeHeld(held, " in this image")
	case len(held) > 0:
		found += "; " + describeHeld(held, " in this image")
	}
	if len(held) < len(status.NotCovered) {
		found += describeGaps(status.Engine, status.NotCovered)
	}
	return found + describeOrigin(status.SBOM) + describeVEX(status.VEX)
}

// describeScanned describes in one line what was found in all images of a Scanner and what was not analysed.
func describeScanned(s *scannerScope) string {
	engine, never := s.scanner.Settings().Backend.Type, EngineGaps(s.backend)
	found, images, held := describeFindings(&s.scanner.ScannerStatus().Findings), 0, []string(nil)
	for _, img := range s.coverage.Running {
		if gaps := evidence.ImageGaps(img.NotCovered, never); len(gaps) > 0 {
			images, held = images+1, append(held, gaps...)
		}
	}
	if images > 0 {
		if found == noFindings {
			found += fmt.Sprintf(" in what %s covers", engine)
		}
		slices.Sort(held)
		found += fmt.Sprintf("; of %s, %s", announce.Pluralize(images, "image"), describeHeld(slices.Compact(held), ""))
	}
	return fmt.Sprintf("%s scanned: %s%s", announce.Pluralize(int(s.scanner.ScannerStatus().Images.Scanned), "image"), found, describeGaps(engine, never))
}

// describeHeld describes what images contain and their reports do not cover: packages of which nothing is known, and distributions that have ended.
func describeHeld(held []string, where string) string {
	var unknown, ended []string
	for _, gap := range held {
		if name, since, hasEnded := strings.Cut(gap, workerapi.NoUpdatesSince); hasEnded {
			ended = append(ended, name+" since "+since)
		} else {
			unknown = append(unknown, gap)
		}
	}
	var texts []string
	if len(unknown) > 0 {
		texts = append(texts, fmt.Sprintf("nothing is known about %s%s", joinGaps(unknown), where))
	}
	if len(ended) > 0 {
		texts = append(texts, "newer vulnerabilities are not known for lack of security updates: "+joinGaps(ended))
	}
	return strings.Join(texts, "; ")
}

// maxNamedGaps is the number of gaps that a message names. status.notCovered has all of them.
const maxNamedGaps = 4

// describeGaps describes what an engine does not analyse, as the end of a line. Empty if gaps is empty.
func describeGaps(engine v1alpha1.BackendType, gaps []string) string {
	if len(gaps) == 0 {
		return ""
	}
	return fmt.Sprintf("; not covered by %s: %s", engine, joinGaps(gaps))
}

func joinGaps(gaps []string) string {
	named := strings.Join(gaps[:min(len(gaps), maxNamedGaps)], ", ")
	if more := len(gaps) - maxNamedGaps; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return named
}

// noFindings describes a result without findings.
const noFindings = "no known vulnerabilities"

// describeFindings describes the counts in one line.
func describeFindings(c *v1alpha1.FindingCounts) string {
	if c == nil {
		return ""
	}
	total := int64(c.Critical) + int64(c.High) + int64(c.Medium) + int64(c.Low) + int64(c.Negligible) + int64(c.Unknown)
	switch {
	case total == 0 && c.Suppressed == 0:
		return noFindings
	case total == 0:
		return fmt.Sprintf("all findings suppressed: %d", c.Suppressed)
	}
	found := fmt.Sprintf("%s: %d critical, %d high; %d fixable, %d known exploited", announce.Pluralize(int(total), "finding"), c.Critical, c.High, c.Fixable, c.KnownExploited)
	if c.Suppressed > 0 {
		found += fmt.Sprintf("; %d more suppressed", c.Suppressed)
	}
	return found
}

// setWhileTrue keeps a condition only while it is true, as kstatus requires of Reconciling and Stalled.
func setWhileTrue(conditions *[]metav1.Condition, kind string, is bool, reason, message string, generation int64) {
	if !is {
		meta.RemoveStatusCondition(conditions, kind)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}
