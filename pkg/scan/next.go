// Package scan decides what happens next with an image of a Scanner.
//
// Next is a pure function of facts that the ImageScan controller reads once: who uses the image, what the store has for it, and when it may
// be tried again. It is the only place that decides whether an image is cataloged, matched, retried, finished or given up. Engines only
// carry out its decisions (package backend). The package knows nothing of conditions, events and Kubernetes clients.
package scan

import (
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// Delays after which an image is checked again if no event comes first.
const (
	// NodeRetry is the delay until the node of a pod appears in the cache.
	NodeRetry = 5 * time.Second
	// StoreRetry is the delay while the store's file or volume has a problem.
	StoreRetry = 30 * time.Second
	// settingsRetry is the delay while the Scanner's settings for its engine cannot be used.
	settingsRetry = 2 * time.Minute
	// blockedRetry is the delay while the Scanner is suspended or refused.
	blockedRetry = time.Hour
)

// Action is what is to be done with an image.
type Action string

// The actions. HandleRescan, Rematch and PollData change facts: Next decides again after them.
const (
	Wait         Action = "Wait"         // do nothing for RetryAfter
	Retire       Action = "Retire"       // delete the ImageScan: the image was unused for its retention
	Fail         Action = "Fail"         // record a failed attempt
	HandleRescan Action = "HandleRescan" // handle a request to scan all images of the Scanner again
	StartCatalog Action = "StartCatalog" // have the engine catalog the image
	Rematch      Action = "Rematch"      // make the report outdated: the ImageScan was deleted and recreated
	PollData     Action = "PollData"     // make the engine check for newer data: the ImageScan's annotation requests it
	RequestMatch Action = "RequestMatch" // have the engine match the image
	Finish       Action = "Finish"       // show the report, which was made with the current data
)

// Decision is what happens next with an image, and why.
type Decision struct {
	Action Action
	// Reason and Message explain Wait and Fail to users. After a Wait without a Reason, the ImageScan keeps its conditions.
	Reason, Message string
	// RetryAfter is the time after which Next is to decide again if no event comes first; 0 if only an event can change the decision. With
	// Fail it is the minimum delay before the next attempt: see Backoff.
	RetryAfter time.Duration
	// Cataloged is true if the decision is based on the image's catalog, which is then the one to show.
	Cataloged bool
}

// Facts are everything that Next goes by. The zero value is a running image of a working Scanner, about which nothing is known yet.
type Facts struct {
	Now time.Time

	// Unused is true if no pod runs the image, as far as is known. PlatformUnknown is true while the platform of at least one pod's node is
	// unknown, so that more pods may run it.
	Unused, PlatformUnknown bool
	// Retention is how long an unused image is still kept. StaysInUse is true if the image is scanned until then like a running one.
	Retention  time.Duration
	StaysInUse bool
	// BareImageID is true if the node knows the image only by its own ID.
	BareImageID bool

	// Refused is true if the namespace has too many Scanners and this one is not among the admitted.
	Refused, Suspended bool
	// Engine is the engine that the Scanner names. EngineDisabled is true if the operator runs without it; there are no Results then.
	Engine         v1alpha1.BackendType
	EngineDisabled bool
	// StoreProblem is why the store cannot be used; there are no Results then.
	StoreProblem *backend.Failure

	// RescanRequested, Recreated and MatchRequested request the actions HandleRescan, Rematch and PollData.
	RescanRequested, Recreated, MatchRequested bool

	// HasResult is true if the ImageScan shows a result. Failed is true if the last attempt failed; NextAttempt is then the time of the next
	// one, zero for now, and CatalogedAs is the platform digest of the catalog that the attempt had, empty for none.
	HasResult, Failed bool
	NextAttempt       time.Time
	CatalogedAs       string

	Results
}

// Next returns what happens next. The first rule that applies decides.
func Next(f Facts) Decision {
	for _, rule := range []func(Facts) *Decision{
		awaitPlatform, awaitStore, retireUnused, handleRescan, block, awaitRetry, requireEngine, requireRegistry, awaitSettings, requireCatalog,
		handleRequests, requireReport,
	} {
		if decision := rule(f); decision != nil {
			return *decision
		}
	}
	return Decision{Action: Finish, RetryAfter: f.recheck(), Cataloged: true}
}

// awaitPlatform: as long as no user of the image is known for certain, it cannot be called unused.
func awaitPlatform(f Facts) *Decision {
	if f.Unused && f.PlatformUnknown {
		return &Decision{Action: Wait, RetryAfter: NodeRetry}
	}
	return nil
}

// awaitStore: no work begins whose result could not be stored. An existing result or failure stays valid.
func awaitStore(f Facts) *Decision {
	if f.StoreProblem == nil {
		return nil
	}
	wait := Decision{Action: Wait, RetryAfter: StoreRetry}
	if !f.HasResult && !f.Failed {
		wait.Reason, wait.Message = f.StoreProblem.Reason, f.StoreProblem.Message
	}
	return &wait
}

// retireUnused: the ImageScan of an unused image is deleted after the retention. Until then, an image whose pods ended is scanned like a
// running one. For every other unused image there is nothing to do here: the store keeps it in the match queue.
func retireUnused(f Facts) *Decision {
	switch {
	case !f.Unused || f.Retention > 0 && f.StaysInUse:
		return nil
	case f.Retention <= 0:
		return &Decision{Action: Retire}
	case f.HasResult || f.Failed:
		return &Decision{Action: Wait, RetryAfter: f.Retention}
	}
	return &Decision{Action: Wait, Reason: v1alpha1.ReasonUnused, Message: "no pod uses the image any more", RetryAfter: f.Retention}
}

// handleRescan: a request stays while the Scanner may not scan.
func handleRescan(f Facts) *Decision {
	if !f.RescanRequested || f.EngineDisabled || f.Refused || f.Suspended {
		return nil
	}
	return &Decision{Action: HandleRescan}
}

// block: a refused or suspended Scanner scans nothing.
func block(f Facts) *Decision {
	switch {
	case f.Refused:
		return &Decision{
			Action: Wait, Reason: v1alpha1.ReasonTooManyScanners, Message: "the namespace has too many Scanners; see this image's own", RetryAfter: blockedRetry,
		}
	case f.Suspended:
		return &Decision{Action: Wait, Reason: v1alpha1.ReasonSuspended, Message: "the Scanner is suspended", RetryAfter: blockedRetry}
	}
	return nil
}

// awaitRetry: a failed image waits for its next attempt, unless the store has what it lacked.
func awaitRetry(f Facts) *Decision {
	if !f.Failed || f.NextAttempt.IsZero() {
		return nil
	}
	wait := min(f.NextAttempt.Sub(f.Now), MaxRetry) // longer only if the clock was set back
	if wait <= 0 || !f.EngineDisabled && f.isSuperseded() {
		return nil
	}
	return &Decision{Action: Wait, RetryAfter: wait}
}

func requireEngine(f Facts) *Decision {
	if !f.EngineDisabled {
		return nil
	}
	return &Decision{Action: Fail, Reason: v1alpha1.ReasonBackendDisabled, Message: fmt.Sprintf("this operator runs without the backend %s", f.Engine)}
}

func requireRegistry(f Facts) *Decision {
	if !f.BareImageID {
		return nil
	}
	return &Decision{
		Action: Fail, Reason: v1alpha1.ReasonBareImageID, RetryAfter: MaxRetry,
		Message: "the node knows this image only by its own id: it was built or loaded there and is in no registry. " +
			"Push it to a registry and run it from there",
	}
}

// awaitSettings: while the Scanner's settings cannot be used, nothing counts that they were used for before.
func awaitSettings(f Facts) *Decision {
	if f.SettingsProblem == nil {
		return nil
	}
	return &Decision{Action: Wait, Reason: f.SettingsProblem.Reason, Message: f.SettingsProblem.Message, RetryAfter: settingsRetry}
}

func requireCatalog(f Facts) *Decision {
	if f.Catalog != nil {
		return nil
	}
	return &Decision{Action: StartCatalog}
}

// handleRequests: requests for a match stay until the image is cataloged.
func handleRequests(f Facts) *Decision {
	switch {
	case f.Recreated:
		return &Decision{Action: Rematch, Cataloged: true}
	case f.MatchRequested:
		return &Decision{Action: PollData, Cataloged: true}
	}
	return nil
}

// requireReport: an image without a current report is matched, unless its last match with this data failed and may not be retried yet. While
// there is no data, the engine explains what it waits for: that is no failure of the image.
func requireReport(f Facts) *Decision {
	if f.isCurrent() {
		return nil
	}
	// A failure in the future was recorded before the clock was set back.
	if failed := f.MatchFailure; f.NoData == nil && failed != nil && failed.RetryAt.After(f.Now) && !failed.FailedAt.After(f.Now) {
		return &Decision{Action: Fail, Reason: failed.Reason, Message: failed.Message, RetryAfter: failed.RetryAt.Sub(f.Now), Cataloged: true}
	}
	return &Decision{Action: RequestMatch, Cataloged: true}
}

// isSuperseded reports whether the store now has what a failed image is missing: a catalog made for another Scanner, or a report made with the
// current data.
func (f Facts) isSuperseded() bool {
	return f.Catalog != nil && (f.Catalog.PlatformDigest != f.CatalogedAs || f.isCurrent())
}

// recheck returns when an image with a current report is to be checked again.
func (f Facts) recheck() time.Duration {
	switch {
	case f.PlatformUnknown:
		return NodeRetry
	case f.Unused:
		return f.Retention
	}
	return 0
}
