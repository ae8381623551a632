// Package export sends what workloads have to other tools: their current findings to DefectDojo, the SBOMs of their images to Dependency-Track.
//
// An export is a state and not a change: a tool gets the newest documents of a workload whenever they differ from those that it accepted last, and
// nothing otherwise. A request that is sent twice, as after a crash between sending and recording, has no further effect. Findings of a workload with
// an image that has no result yet are not sent: a tool would take missing findings for fixed. The package does not decide what a finding or an
// exception is, and never reads a Secret: the notifier sends (docs/understand/decisions/0036-exports.md).
package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// MaxWorkloads bounds the workloads of an export, and with them the memory of a run and the records in the store.
	MaxWorkloads = 10_000
	// maxFindings bounds the findings of a workload, in addition to MaxDocumentBytes.
	maxFindings = 10_000
	// maxRun is how long a run sends before it plans again.
	maxRun = 30 * time.Second
	// goneAfter is how long a workload must not have been there before its findings are closed. During a rollout or a restore, it can be missing for a
	// while.
	goneAfter = time.Hour
	// The waits after failed attempts. What only the user can change is tried again as often as for a receiver.
	minBackoff     = time.Minute
	maxBackoff     = time.Hour
	permanentRetry = 5 * time.Minute
)

// Sender sends a Request, once, and returns what became of it.
type Sender interface {
	SendExport(ctx context.Context, r Request) announce.Outcome
}

// Store is the part of the store that an Exporter uses.
type Store interface {
	ExportStates(ctx context.Context, scanner, name string) (map[string][]byte, error)
	SaveExportStates(ctx context.Context, scanner, name string, states map[string][]byte) error
	WorkloadVersion(ctx context.Context, scanner, namespace, kind, name string) (store.WorkloadVersion, error)
	Workload(ctx context.Context, asked store.WorkloadQuery, limit int) (store.WorkloadDetails, error)
	WorkloadSBOMs(ctx context.Context, scanner, namespace, kind, name string) ([]store.WorkloadSBOM, error)
	OpenArtifact(ctx context.Context, platformDigest string, scope store.Scope, a store.Artifact) (io.ReadCloser, int64, error)
	HasAnomaly(ctx context.Context, scanner string) (bool, error)
	WorkloadAbsence(ctx context.Context, scanner, namespace, kind, name string) (store.WorkloadFacts, error)
	InSnapshot(ctx context.Context, work func(context.Context) error) error
}

// Settings are a Scanner's settings for one export.
type Settings struct {
	// UID is the Scanner's, and Scanner its namespace and name, for the notifier's log. Name is that of the export.
	UID, Scanner, Name string
	// Generation is the Scanner's. After a failure, a new one is tried at once.
	Generation int64
	Receiver   announce.ReceiverRef
	// Engine is shown in the names of tests, so that those of two engines stay apart. EngineGaps is what the engine covers in no image.
	Engine     string
	EngineGaps []string
	// Cluster is the cluster's name for the tool: the engagement in a DefectDojo, the version of projects in a Dependency-Track. Nothing is sent
	// while it is empty: two clusters would overwrite each other's workloads.
	Cluster string
	// ProductType is that of a DefectDojo.
	ProductType string
	// Exceptions are in force now.
	Exceptions exception.Set
	// HasOtherImages reports whether a workload runs, or is about to run, an image that is none of these: the store may not know of it yet.
	HasOtherImages func(ctx context.Context, namespace, kind, name string, known []image.Key) (bool, error)
	// IsCovered reports whether the Scanner is responsible for a namespace. The findings of a workload that has left its coverage stay in the tool.
	IsCovered func(namespace string) bool

	// hasAnomaly means that the engine's data has an anomaly. A run sets it.
	hasAnomaly bool
}

func (s Settings) exceptionsIn(namespace string) exception.Set {
	return s.Exceptions.In(map[string]bool{namespace: true})
}

// Exporter exports the findings of Scanners. It is safe for concurrent use, but not for the same export.
type Exporter struct {
	Store  Store
	Sender Sender
	Now    func() time.Time
}

// Result is the result of a run.
type Result struct {
	Before, After State
	// Outcomes are those of the attempts, in order.
	Outcomes []announce.Outcome
	// Next is the time of the next run; zero when something changes.
	Next time.Time
}

// Run sends what has changed, one workload after the other, until everything is sent, an attempt fails, or maxRun is over. workloads are all of the
// Scanner. The error is the store's.
func (e Exporter) Run(ctx context.Context, s Settings, workloads []store.WorkloadVersion) (Result, error) {
	r := run{Exporter: e, Settings: s, tool: tools[s.Receiver.Type], begun: e.Now()}
	if err := r.load(ctx); err != nil {
		return Result{}, err
	}
	r.result.Before = r.state
	if r.state.Generation != s.Generation {
		r.state.Generation, r.state.Failures, r.state.NextAttempt = s.Generation, 0, time.Time{}
	}
	r.state.Unnamed = s.Cluster == ""
	var err error
	if !r.state.Unnamed {
		err = r.planAndSend(ctx, workloads)
	}
	r.result.After = r.state
	if r.result.After != r.result.Before {
		err = errors.Join(err, r.save(ctx, "", r.state))
	}
	return r.result, err
}

func (r *run) planAndSend(ctx context.Context, workloads []store.WorkloadVersion) error {
	queue, err := r.plan(ctx, workloads)
	if err != nil {
		return err
	}
	return r.sendAll(ctx, queue)
}

// run is one run of one export.
type run struct {
	Exporter
	Settings
	tool   tool
	begun  time.Time
	state  State
	items  map[string]item
	result Result
}

func (r *run) load(ctx context.Context) error {
	stored, err := r.Store.ExportStates(ctx, r.UID, r.Name)
	if err != nil {
		return err
	}
	if r.state, err = ParseState(stored[""]); err != nil {
		return err
	}
	delete(stored, "")
	if r.hasAnomaly, err = r.Store.HasAnomaly(ctx, r.UID); err != nil {
		return err
	}
	r.items = make(map[string]item, len(stored))
	for key, data := range stored {
		if r.items[key], err = parse[item](data); err != nil {
			return err
		}
	}
	return nil
}

// versionOf identifies everything that decides what the tool gets about a workload.
func (r *run) versionOf(w store.WorkloadVersion) string {
	return sumOf(r.tool.versionOf(r.Settings, w), r.Receiver.SecretName)
}

// task is a workload whose documents are to be sent, or closed if it has gone.
type task struct {
	key  string
	item item
	gone bool
	// incomplete means that there is not everything yet that the tool gets about the workload.
	incomplete bool
}

// plan compares the workloads with what the tool has, and returns what is to be sent. A workload whose attempt is longest ago comes first, so that
// one that the tool refuses delays no other.
func (r *run) plan(ctx context.Context, workloads []store.WorkloadVersion) (queue []task, err error) {
	changed, seen, total := map[string][]byte{}, make(map[string]bool, len(workloads)), len(r.items)
	r.state.Workloads, r.state.Pending, r.state.Waiting, r.state.Omitted, r.state.Lacking, r.state.LackingName = 0, 0, 0, 0, 0, ""
	for _, w := range workloads {
		key := sumOf(w.Namespace, w.Kind, w.Name)
		known, isKnown := r.items[key]
		seen[key] = true
		if !known.MissingSince.IsZero() {
			known.MissingSince = time.Time{}
			if changed[key], err = json.Marshal(known); err != nil {
				return nil, err
			}
		}
		if w.Ended {
			continue
		}
		isIncomplete := r.countWaiting(w)
		switch {
		case w.Pending > 0 && r.tool.needsAllResults():
		case isKnown && known.Version == r.versionOf(w):
			if !isIncomplete {
				r.state.Workloads++
			}
		case !isKnown && total >= MaxWorkloads:
			r.state.Omitted++
		default:
			if !isKnown {
				known, total = item{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name}, total+1
			}
			queue = append(queue, task{key: key, item: known, incomplete: isIncomplete})
		}
	}
	for key, known := range r.items {
		if seen[key] {
			continue
		}
		switch {
		case !r.IsCovered(known.Namespace), len(known.Documents) == 0:
			changed[key] = nil
		case known.MissingSince.IsZero():
			known.MissingSince = r.begun
			if changed[key], err = json.Marshal(known); err != nil {
				return nil, err
			}
			r.next(known.MissingSince.Add(goneAfter))
		case r.begun.Sub(known.MissingSince) < goneAfter:
			r.next(known.MissingSince.Add(goneAfter))
		default:
			queue = append(queue, task{key: key, item: known, gone: true})
		}
	}
	slices.SortFunc(queue, func(a, b task) int {
		return cmp.Or(a.item.Attempted.Compare(b.item.Attempted), cmp.Compare(a.key, b.key))
	})
	r.state.Pending = len(queue)
	if len(changed) > 0 {
		err = r.Store.SaveExportStates(ctx, r.UID, r.Name, changed)
	}
	return queue, err
}

// countWaiting counts a workload that lacks something that the tool gets about it, and reports whether it does.
func (r *run) countWaiting(w store.WorkloadVersion) bool {
	lacks := r.tool.lacksDocument(w)
	if lacks {
		if r.state.Lacking++; r.state.Lacking == 1 {
			r.state.LackingName = nameOf(w.Namespace, w.Kind, w.Name)
		}
	}
	if !lacks && w.Pending == 0 {
		return false
	}
	r.state.Waiting++
	return true
}

// nameOf names a workload in texts for people.
func nameOf(namespace, kind, name string) string {
	return fmt.Sprintf("%s %s in the namespace %s", kind, name, namespace)
}

// next sets the time of the next run, unless it is earlier already.
func (r *run) next(at time.Time) {
	if r.result.Next.IsZero() || at.Before(r.result.Next) {
		r.result.Next = at
	}
}

// sendAll works through the queue.
func (r *run) sendAll(ctx context.Context, queue []task) error {
	if len(queue) == 0 {
		r.state.Importing = ""
		r.state.LastError, r.state.Failures, r.state.NextAttempt = nil, 0, time.Time{}
		return nil
	}
	for _, t := range queue {
		switch now := r.Now(); {
		case now.Before(r.state.NextAttempt):
			r.next(r.state.NextAttempt)
			return nil
		case now.Sub(r.begun) >= maxRun, isOver(ctx):
			r.next(now)
			return nil
		}
		if err := r.send(ctx, t); err != nil {
			return err
		}
	}
	switch now := r.Now(); {
	case now.Before(r.state.NextAttempt):
		r.next(r.state.NextAttempt)
	case r.state.Pending > 0:
		r.next(now.Add(minBackoff))
	}
	return nil
}

func isOver(ctx context.Context) bool { return ctx.Err() != nil }

// send sends the documents of one workload that the tool does not have already, and records the outcome.
func (r *run) send(ctx context.Context, t task) error {
	outcome, err := r.sendDocuments(ctx, &t)
	var tooLarge *tooLargeError
	switch refused := (announce.Outcome{Result: announce.Permanent}); {
	case errors.Is(err, errNotReady), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrReplaced):
		r.state.Pending, r.state.Waiting = r.state.Pending-1, r.state.Waiting+1
		r.next(r.Now().Add(minBackoff))
		return nil
	case errors.Is(err, store.ErrTooManyCandidates):
		refused.Reason = ReasonTooManyFindings
		refused.Message = nameOf(t.item.Namespace, t.item.Kind, t.item.Name) + " has more findings than an export can have"
		return r.record(ctx, t, refused)
	case errors.As(err, &tooLarge):
		refused.Reason, refused.Message = ReasonSBOMNotSent, nameOf(t.item.Namespace, t.item.Kind, t.item.Name)+": "+tooLarge.Error()
		return r.record(ctx, t, refused)
	case err != nil:
		return err
	case outcome.Result != announce.Delivered:
		return r.record(ctx, t, outcome)
	}
	return r.done(ctx, t)
}

// sendDocuments sends the documents of a workload one after the other, until an attempt fails. The outcome is that of the last attempt. The document
// that failed last comes last, so that one that the tool refuses keeps no other away.
func (r *run) sendDocuments(ctx context.Context, t *task) (announce.Outcome, error) {
	documents, version, facts, err := r.compose(ctx, *t)
	if err != nil {
		return announce.Outcome{}, err
	}
	keepOld := !t.gone && r.keepsOld(&t.item, facts)
	names := slices.Sorted(maps.Keys(documents))
	after, _ := slices.BinarySearch(names, t.item.Failed+"\x00")
	for _, name := range slices.Concat(names[after:], names[:after]) {
		if outcome, err := r.sendDocument(ctx, &t.item, name, documents[name], keepOld); err != nil || outcome.Result != announce.Delivered {
			t.item.Failed = name
			return outcome, err
		}
	}
	t.item.Version, t.item.Failed = version, ""
	return announce.Outcome{Result: announce.Delivered}, nil
}

// keepsOld reports whether the absence of findings in a workload is not proven, so that nothing of it may be closed. It adds to the item the sources whose
// findings the tool will have.
func (r *run) keepsOld(of *item, facts store.WorkloadFacts) bool {
	if !r.tool.needsAllResults() {
		return false
	}
	isSilent := func(source string) bool { return slices.Contains(facts.Silent, source) }
	// A workload is sent when all its images have results, and the test in the tool is of this engine alone.
	facts.Complete, facts.SameEngine = len(evidence.ImageGaps(facts.Gaps, r.EngineGaps)) == 0, true
	facts.SourcesReported = !slices.ContainsFunc(of.Sources, isSilent)
	if !facts.SourcesReported {
		facts.Sources = append(facts.Sources, slices.DeleteFunc(slices.Clone(of.Sources), func(source string) bool { return !isSilent(source) })...)
	}
	slices.Sort(facts.Sources)
	of.Sources = slices.Compact(facts.Sources)
	return evidence.Of(facts.Facts) != evidence.ProvenAbsent
}

// sendDocument sends a document unless the tool has it already, and notes in the item what the tool has. The error is the store's.
func (r *run) sendDocument(ctx context.Context, to *item, name string, d document, keepOld bool) (announce.Outcome, error) {
	keepOld = keepOld || d.isCut
	content := sumOf(d.id, fmt.Sprint(d.project), r.Receiver.SecretName, fmt.Sprint(keepOld))
	if d.read == nil || to.Documents[name].Content == content {
		return announce.Outcome{Result: announce.Delivered}, nil
	}
	encoded, err := d.read(ctx)
	if err != nil {
		return announce.Outcome{}, err
	}
	begun := r.Now()
	mayRunFor := to.Documents[name].mayRunFor(begun, r.tool.timeout())
	outcome := r.Sender.SendExport(ctx, Request{
		Receiver: r.Receiver, Scanner: r.Scanner, Project: d.project, Document: encoded, KeepOld: keepOld, MayRunFor: mayRunFor,
	})
	r.result.Outcomes = append(r.result.Outcomes, outcome)
	if to.Documents == nil {
		to.Documents = map[string]sent{}
	}
	switch earlier, isKnown := to.Documents[name]; {
	case outcome.Result == announce.UnknownOutcome:
		// The tool may have the document from now on, and not what it had before.
		if mayRunFor > 0 {
			begun = earlier.Since
		}
		to.Documents[name], to.Version = sent{Project: d.project, Since: begun}, ""
		return outcome, nil
	case outcome.Result != announce.Delivered:
		if isKnown && WasTried(outcome) { // the import is over
			earlier.Since = time.Time{}
			to.Documents[name] = earlier
		}
		return outcome, nil
	case d.closes:
		delete(to.Documents, name)
	default:
		to.Documents[name] = sent{Project: d.project, Content: content}
	}
	to.Attempted, r.state.Importing = r.Now(), ""
	r.state.LastSuccess, r.state.LastError, r.state.Failures, r.state.NextAttempt = r.Now(), nil, 0, time.Time{}
	return outcome, nil
}

// done records that the tool has the findings of a workload. Nothing is kept of one that has gone.
func (r *run) done(ctx context.Context, t task) error {
	r.state.Pending--
	if t.gone {
		return r.Store.SaveExportStates(ctx, r.UID, r.Name, map[string][]byte{t.key: nil})
	}
	if !t.incomplete {
		r.state.Workloads++
	}
	return r.save(ctx, t.key, t.item)
}

// record records an attempt that did not succeed, and when the next one is due.
func (r *run) record(ctx context.Context, t task, outcome announce.Outcome) error {
	now := r.Now()
	r.state.Importing = ""
	if outcome.IsInProgress() {
		r.state.Importing, r.state.LastError = nameOf(t.item.Namespace, t.item.Kind, t.item.Name), nil
	}
	if outcome.Result == announce.RateLimited || outcome.IsInProgress() {
		r.state.NextAttempt = now.Add(max(outcome.RetryAfter, time.Second))
		return r.save(ctx, t.key, t.item) // the tool may have accepted another document of the workload
	}
	r.state.Failures++
	wait := backoff.After(r.state.Failures, minBackoff, maxBackoff)
	if outcome.Result == announce.Permanent {
		wait = min(wait, permanentRetry)
	}
	r.state.NextAttempt = now.Add(wait)
	r.state.LastError = &announce.DeliveryError{Reason: outcome.Reason, Message: outcome.Message, At: now}
	if outcome.Reason == announce.ReasonDeposed {
		return nil // another manager leads, and writes the records
	}
	t.item.Attempted = now
	return r.save(ctx, t.key, t.item)
}

// errNotReady means that the workload is not there, is there again, or has an image without a result, other than the run was planned with.
var errNotReady = errors.New("the workload has changed")

// compose returns the documents about a workload by name, with what identifies where they come from. Documents that the tool has and that are not
// among those of the workload any more are closed.
func (r *run) compose(ctx context.Context, t task) (documents map[string]document, version string, facts store.WorkloadFacts, err error) {
	var images []image.Key
	i := t.item
	err = r.Store.InSnapshot(ctx, func(ctx context.Context) error {
		w, err := r.Store.WorkloadVersion(ctx, r.UID, i.Namespace, i.Kind, i.Name)
		switch isThere := !errors.Is(err, store.ErrNotFound); {
		case isThere && err != nil:
			return err
		case isThere == t.gone, isThere && (w.Ended || w.Pending > 0 && r.tool.needsAllResults()):
			return errNotReady
		case t.gone:
			documents = map[string]document{}
			return nil
		}
		version, images = r.versionOf(w), w.Images
		if facts, err = r.Store.WorkloadAbsence(ctx, r.UID, i.Namespace, i.Kind, i.Name); err != nil {
			return err
		}
		documents, err = r.tool.documents(ctx, r.Settings, r.Store, w)
		return err
	})
	if err != nil {
		return nil, "", facts, err
	}
	closes := false
	for name, known := range i.Documents {
		if _, isThere := documents[name]; !isThere {
			closing, err := r.tool.closing(known.Project)
			if err != nil {
				return nil, "", facts, err
			}
			closing.closes, closes = true, true
			documents[name] = closing
		}
	}
	if !closes && !r.tool.needsAllResults() {
		return documents, version, facts, nil
	}
	// The pods are read after the store. Whatever they run by now is either among the images, or the reason to wait.
	if others, err := r.HasOtherImages(ctx, i.Namespace, i.Kind, i.Name, images); err != nil || others {
		return nil, "", facts, cmp.Or(err, errNotReady)
	}
	return documents, version, facts, nil
}

func (r *run) save(ctx context.Context, key string, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return r.Store.SaveExportStates(ctx, r.UID, r.Name, map[string][]byte{key: encoded})
}
