// Package backend is the contract between the controllers and the engines that find vulnerabilities.
//
// An engine first lists what is in an image, once, and then matches that list with what is known about
// vulnerabilities, again whenever that changes. Engines bring their reports to the store themselves; the
// controllers only ask whether it is done. A backend knows nothing of Scanners' status or of notifications.
package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Backend turns images into reports. Index and Match are level-triggered: they are called again, possibly
// after a restart, until they say Done, and never wait for anything themselves.
type Backend interface {
	// Engine is the name under which catalogues, reports and data versions are stored: the engine's in lower case, and where
	// there are several instances of it, which one. What has different names is never mixed.
	Engine() string
	// Index makes sure that the image's content is listed. A *Failure says that it can't be, and why; any
	// other error is the operator's own trouble and says nothing about the image.
	Index(ctx context.Context, img Image) (Progress, error)
	// Match makes sure that the image, which is indexed, has a report made with the current data. Errors are those of Index.
	Match(ctx context.Context, img Image) (Progress, error)
	// DataVersion is the vulnerability data in use. A *Failure says that there is none, and why.
	DataVersion(ctx context.Context) (store.DataVersion, error)
}

// ErrWorkerReplaced refuses a worker whose version of the engine another worker's has replaced while the manager runs.
var ErrWorkerReplaced = errors.New("another build of the worker image with another version of the engine has replaced this one: " +
	"name the image by its digest, or restart the manager to go back")

// DataReporter is a Backend that can say how its vulnerability data fares.
type DataReporter interface {
	// DataProblem says in one line what is wrong with the data in use, which is the zero value if there is none: that it
	// is old, or why newer data is not in use. Empty if there is no such trouble.
	DataProblem(current store.DataVersion) string
	// MaxDataAge is the age from which on the data in use is too old; 0 if that cannot be said.
	MaxDataAge() time.Duration
}

// Chooser gives the backend for a Scanner, by what the Scanner says about its engine. It never fails: what is wrong with the
// settings, calls of the backend say.
type Chooser func(*v1alpha1.Scanner) Backend

// Always is the Chooser of an engine that is the same for all Scanners.
func Always(b Backend) Chooser { return func(*v1alpha1.Scanner) Backend { return b } }

// Choosers are the engines that the operator runs with.
type Choosers map[v1alpha1.BackendType]Chooser

// For returns the backend for a Scanner; nil if the operator runs without it.
func (c Choosers) For(scanner *v1alpha1.Scanner) Backend {
	if choose := c[scanner.Spec.Backend.Type]; choose != nil {
		return choose(scanner)
	}
	return nil
}

// Prompted is a Backend that can look for newer vulnerability data at once.
type Prompted interface {
	// Prompt hints that there may be newer data, which counts for all images as always: those whose findings are of the
	// current data version stay as they are. It returns at once; hints that come often cost nothing more.
	Prompt(ctx context.Context) error
}

// Partial is a Backend that does not analyse everything that images commonly hold.
type Partial interface {
	// NotCovered names the ecosystems that are not analysed in any image, in a fixed order. Reports have these as well, after
	// what is not analysed of what their image holds.
	NotCovered() []string
}

// Holder is a Backend that keeps something elsewhere on behalf of Scanners, which has to be undone.
type Holder interface {
	// Release undoes what is kept elsewhere only for images that the Scanner (by UID) has. It is called until it returns
	// nothing: the time until it makes sense to ask again, and what is waited for.
	Release(ctx context.Context, scanner string) (wait time.Duration, message string, err error)
	// Holds says whether anything is kept for the Scanner.
	Holds(ctx context.Context, scanner string) (bool, error)
}

// Image is an image to scan, and what is allowed for it.
type Image struct {
	Key image.Key
	// Scope in which a listing may come from elsewhere and may serve others.
	Scope store.Scope
	// Namespace and UID of the Scanner on whose behalf this is.
	Namespace, Scanner string
	// PullReferences, best first, by digest.
	PullReferences []string
	// PullSecrets are the names of the Secrets, in Namespace, that pods pull the image with. Empty in cluster scope.
	PullSecrets []string
	// ServiceAccounts are the names of those, in Namespace, that pods with the image run as.
	ServiceAccounts []string
	// Job shapes Jobs in Namespace; nil if the Scanner says nothing.
	Job *v1alpha1.CatalogJob
}

// Progress says how far a step is.
type Progress struct {
	// Done says that there is nothing left to do.
	Done bool
	// Reason and Message tell people what is waited for, if not done.
	Reason, Message string
	// CheckAgain is when to ask again if nothing else happens before; always more than 0 if not done.
	CheckAgain time.Duration
}

// Waiting is a Progress that is not done.
func Waiting(reason, message string, checkAgain time.Duration) Progress {
	return Progress{Reason: reason, Message: message, CheckAgain: checkAgain}
}

// Done is a Progress that is.
var Done = Progress{Done: true}

// Failure says that an image could not be scanned. It is shown to users.
type Failure struct {
	// Reason is one CamelCase word.
	Reason string
	// Message says what went wrong and what to do. It holds no credentials.
	Message string
	// RetryAfter is the least time before another attempt makes sense; 0 if the caller may choose.
	RetryAfter time.Duration
	// Registry is the host that wants to be left alone for that time; empty with all other reasons.
	Registry string
}

// Error returns reason and message.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Reason, f.Message) }
