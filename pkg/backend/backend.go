// Package backend is the contract between the controllers and the scan engines, such as Grype and Clair.
//
// An engine catalogs an image once. It then matches the catalog with its vulnerability data, and again whenever that data changes.
// Engines write catalogs and reports to the store themselves. Package scan decides what an image needs next; an engine starts that, and
// explains what the image waits for. A backend knows nothing of Scanner status or notifications.
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

// Backend turns images into reports. StartCatalog and RequestMatch are level-triggered: callers repeat them, possibly after a restart, until
// the store has the result. They never block on scan work.
type Backend interface {
	// Engine returns the name under which the store keeps catalogs, reports and data versions. It is the engine's name in lower case. With
	// several instances of one engine, it also identifies the instance. Results of different names are never mixed.
	Engine() string
	// StartCatalog makes sure that an image without a catalog is being cataloged, or waits for that. It returns Done if the catalog is in the
	// store by now. A *Failure means that the image cannot be cataloged, and says why. Any other error is a problem of the operator and says
	// nothing about the image.
	StartCatalog(ctx context.Context, img Image) (Progress, error)
	// RequestMatch makes sure that a cataloged image without a current report is being matched, or waits for that. The image is in the
	// store's match queue already. It returns Done if the report is in the store by now. Its errors are those of StartCatalog.
	RequestMatch(ctx context.Context, img Image) (Progress, error)
	// DataVersion returns the vulnerability data in use. A *Failure means that there is none, and says why.
	DataVersion(ctx context.Context) (store.DataVersion, error)
}

// ErrWorkerReplaced refuses a worker whose engine version was replaced by that of another worker within the last hour.
var ErrWorkerReplaced = errors.New("another build of the worker image with another version of the engine has replaced this one: " +
	"name the image by its digest; to go back to this version, do that, or wait for an hour")

// CatalogRefresher is a Backend whose catalogs can become outdated.
type CatalogRefresher interface {
	// RefreshCatalog catalogs an image again if its catalog is outdated. That catalog counts until then. Callers repeat it.
	RefreshCatalog(img Image, catalog store.Catalog)
}

// SettingsChecker is a Backend that a Scanner may name with unusable settings.
type SettingsChecker interface {
	// SettingsProblem returns why the Scanner's settings cannot be used; nil if they can. StartCatalog, RequestMatch and RefreshCatalog are
	// called only if it returns nil.
	SettingsProblem() *Failure
}

// DataReporter is a Backend that reports the health and age of its vulnerability data.
type DataReporter interface {
	// DataProblem describes in one line what is wrong with the data: that it is old, or why newer data is not in use. It returns "" if
	// there is no problem. The argument is the data in use, or the zero value if there is none.
	DataProblem(current store.DataVersion) string
	// MaxDataAge returns the age above which the data in use is too old, or 0 if it is unknown.
	MaxDataAge() time.Duration
}

// MaxClockSkew is how far in the future data may have been built.
const MaxClockSkew = 24 * time.Hour

// FutureData describes data that was built so far in the future that nothing tells its age; empty if it was not.
func FutureData(built, now time.Time) string {
	if built.Sub(now) <= MaxClockSkew {
		return ""
	}
	return fmt.Sprintf("the vulnerability data was built at %s, and it is %s by the operator's clock: set the node's clock, since nothing tells how old the data is",
		built.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// AvailabilityChecker is a Backend that learns only from requests whether its engine is available.
type AvailabilityChecker interface {
	// AvailabilityKnown reports whether the engine has answered a request, or failed to, since the manager started. Until then, DataVersion
	// returns what the store has.
	AvailabilityKnown() bool
}

// Chooser returns the Backend for a Scanner according to its backend settings. It never fails: invalid settings are reported by the calls
// of the Backend that it returns.
type Chooser func(v1alpha1.GenericScanner) Backend

// Always returns a Chooser that returns the same Backend for all Scanners.
func Always(b Backend) Chooser { return func(v1alpha1.GenericScanner) Backend { return b } }

// Choosers holds the Chooser of each engine that the operator runs with.
type Choosers map[v1alpha1.BackendType]Chooser

// For returns the Backend for a Scanner, or nil if the operator runs without that engine.
func (c Choosers) For(scanner v1alpha1.GenericScanner) Backend {
	if choose := c[scanner.Settings().Backend.Type]; choose != nil {
		return choose(scanner)
	}
	return nil
}

// DataPoller is a Backend that can check for newer vulnerability data on request.
type DataPoller interface {
	// RequestDataPoll hints that newer vulnerability data may exist. If it does, all images that were matched with older data are matched again.
	// Prompt returns at once. Frequent hints cause no extra load.
	RequestDataPoll(ctx context.Context) error
}

// PartialCoverage is a Backend that does not analyze all ecosystems that images commonly contain.
type PartialCoverage interface {
	// NotCovered returns the ecosystems that the engine does not analyze in any image, in a fixed order. Each report ends its own
	// NotCovered with these names, after the gaps that are specific to the image.
	NotCovered() []string
}

// ExternalStateHolder is a Backend that keeps data in another system on behalf of Scanners. That data has to be deleted when the Scanners are.
type ExternalStateHolder interface {
	// Release deletes what is kept elsewhere only for images of the Scanner, given by UID. Callers repeat Release until wait is 0.
	// Otherwise wait is the time until the next call makes sense, and message says what Release is waiting for.
	Release(ctx context.Context, scanner string) (wait time.Duration, message string, err error)
	// Holds reports whether anything is kept for the Scanner, given by UID.
	Holds(ctx context.Context, scanner string) (bool, error)
}

// Image is an image to scan, with the credentials and Job settings that may be used for it.
type Image struct {
	Key image.Key
	// Scope is the credential scope: a catalog may come from this scope, and the result serves this scope.
	Scope store.Scope
	// Namespace and UID of the Scanner that the image is scanned for.
	Namespace, Scanner string
	// PullReferences are pull references by digest, best first.
	PullReferences []string
	// SBOMPolicy is the policy by which an attested or uploaded SBOM of the image is accepted instead of a catalog of its content; empty for none.
	SBOMPolicy string
	// VEXPolicy is the policy by which OpenVEX documents that are attached to the image are accepted; empty for none.
	VEXPolicy string
	// PullSecrets are the names of the Secrets, in Namespace, that pods pull the image with. Empty in cluster scope.
	PullSecrets []string
	// ServiceAccounts are the names of the ServiceAccounts, in Namespace, of the pods that run the image.
	ServiceAccounts []string
	// Job customizes Jobs that run in Namespace; nil if the Scanner has no such settings.
	Job *v1alpha1.CatalogJob
}

// OfScanner returns the image as one of its Scanner.
func (i Image) OfScanner() store.ScannerImage {
	return store.ScannerImage{Scanner: i.Scanner, Namespace: i.Namespace, Key: i.Key}
}

// Progress is the state of cataloging or matching an image.
type Progress struct {
	// Done means that the store has the result.
	Done bool
	// Reason and Message tell users what an unfinished step is waiting for.
	Reason, Message string
	// RequeueAfter is the time after which the caller repeats the call if no event comes first. It is positive unless Done.
	RequeueAfter time.Duration
}

// Waiting returns a Progress that is not done.
func Waiting(reason, message string, checkAgain time.Duration) Progress {
	return Progress{Reason: reason, Message: message, RequeueAfter: checkAgain}
}

// Done is the Progress of a finished step: nothing is left to do.
var Done = Progress{Done: true}

// Failure is the reason why an image could not be scanned. It is shown to users.
type Failure struct {
	// Reason is one CamelCase word.
	Reason string
	// Message says what went wrong and what to do. It contains no credentials.
	Message string
	// RetryAfter is the minimum time before another attempt makes sense; 0 leaves the delay to the caller.
	RetryAfter time.Duration
	// Registry is the host that throttles requests for RetryAfter; empty with any other reason.
	Registry string
}

// Error returns reason and message.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Reason, f.Message) }
