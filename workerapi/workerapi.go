package workerapi

import "time"

// Audience is the audience of the projected service account token that a worker presents as its bearer token.
const Audience = "scanner-operator-ingest"

// What a worker finds in its pod.
const (
	// TokenFile holds the projected service account token. The kubelet renews it: read it for every request.
	TokenFile = "/var/run/secrets/scanner-operator/token"
	// TerminationFile is where a failing worker leaves its Failure as JSON, for the manager to read from the pod's status.
	TerminationFile = "/dev/termination-log"
	// PullSecretsDir has one directory per pull secret, named like it, each with a .dockerconfigjson or .dockercfg file.
	// Directories of missing Secrets are empty.
	PullSecretsDir = "/var/run/secrets/scanner-operator-pull"
	// DatabaseDir is where the match worker keeps vulnerability databases, one directory per version.
	DatabaseDir = "/var/lib/scanner-operator/database"

	// EnvServer is the ingest API's base URL, https only.
	EnvServer = "SCANNER_SERVER"
	// EnvServerCA is the PEM bundle that the ingest API's certificate is verified with.
	EnvServerCA = "SCANNER_SERVER_CA"
	// EnvRegistries is a JSON list of Registry: how to reach registries that need more than the defaults.
	EnvRegistries = "SCANNER_REGISTRIES"
)

// Paths of the ingest API. Each request is authenticated; which image or lease it may speak of follows
// from the manager's own record of the Job that the token's pod belongs to.
const (
	// PathCatalogResult takes PUT with everything that a catalog Job brings, as ContentTypeCatalog. A Job brings one result: the same
	// upload again is answered as before, another one is refused with 409. 507 says that there is no room for it now.
	PathCatalogResult = "/v1/catalog/result"

	// PathDatabase takes POST with a DatabaseStatus and answers with a DatabaseOrder.
	PathDatabase = "/v1/match/database"
	// PathAlive takes POST with {}: a match worker that does something else for long, such as installing a database, reports that it is alive.
	PathAlive = "/v1/match/alive"
	// PathLeases takes POST with a LeaseRequest and answers with a LeaseResponse, waiting up to LeaseRequest.WaitSeconds for work.
	PathLeases = "/v1/match/leases"
	// PathLeaseInput answers GET with the match input of a lease, zstd-compressed. {lease} is Lease.ID.
	PathLeaseInput = "/v1/match/leases/{lease}/input"
	// PathLeaseReport takes PUT with the Report of a lease as zstd-compressed JSON and ends the lease.
	PathLeaseReport = "/v1/match/leases/{lease}/report"
	// PathLeaseFailure takes POST with a Failure and ends the lease.
	PathLeaseFailure = "/v1/match/leases/{lease}/failure"
)

// Limits of the ingest API in bytes as sent, that is compressed. More is refused with 413.
const (
	// MaxCatalogBytes bounds the whole upload of a catalog Job. The operator's configuration may allow less.
	MaxCatalogBytes = 256 << 20
	MaxReportBytes  = 16 << 20
	MaxJSONBytes    = 1 << 20
	// MaxManifestBytes bounds each index and manifest of a catalog Job's upload, MaxManifestsBytes all of them together without
	// the last, and MaxManifests their number: indexes, what they hold and no runtime runs, and the platform's manifest.
	MaxManifestBytes  = 4 << 20
	MaxManifestsBytes = 12 << 20
	MaxManifests      = 33
)

// Limits after decompression. More is refused with 413.
const (
	MaxSBOMContentBytes       = 1 << 30
	MaxMatchInputContentBytes = 64 << 20
	MaxReportContentBytes     = 128 << 20
)

// MaxWindowBytes bounds the memory that decompression takes, whatever a body's header claims: of a larger zstd window, nothing is read.
// Encoders use 8 MiB by default.
const MaxWindowBytes = 32 << 20

// MaxPackages bounds the packages of one image, and how many relationships say that one belongs to another: a match worker holds all of
// them in memory. More is refused with 422.
const MaxPackages = 100_000

// Limits inside a report, because a few bytes of JSON can become many in memory. More is refused with 413.
const (
	MaxReportFindings = 100_000
	// MaxReportListEntries bounds the entries of all lists of all findings together: aliases, locations, …
	MaxReportListEntries = 1_000_000
	// MaxFindingBytes bounds one finding as JSON.
	MaxFindingBytes = 1 << 20
)

// Content types of uploads.
const (
	ContentTypeZstd = "application/zstd"
	ContentTypeJSON = "application/json"
	// ContentTypeCatalog is a CatalogResult as one line of JSON, and after it the documents whose sizes it names, in the order of its
	// fields: indexes and manifest as the registry sent them, then the syft-json SBOM and the match input, both zstd-compressed.
	ContentTypeCatalog = "application/vnd.scanner-operator.catalog"
)

// DigestHeader carries "sha256:<hex>" of an upload's body as sent. A body that differs is refused with 400,
// which also notices a truncated one.
const DigestHeader = "X-Content-Digest"

// Registry says how to reach one registry.
type Registry struct {
	// Host is the registry's host name, with its port unless that is the scheme's default.
	Host string `json:"host"`
	// PlainHTTP allows HTTP without TLS for this host only.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// CABundle are PEM certificates that this host's certificate may be signed by, beside the well-known authorities.
	CABundle string `json:"caBundle,omitempty"`
	// Mirrors are asked before the registry itself: a host with or without a path to put before the repository.
	Mirrors []string `json:"mirrors,omitempty"`
}

// CatalogResult begins a catalog Job's upload. The platform's manifest, and that it belongs to the image, is not stated here: the manager
// computes it from the documents that follow.
type CatalogResult struct {
	// Image is the reference that the image was pulled by.
	Image string `json:"image"`
	// Platform that the image was asked for, os/architecture[/variant].
	Platform string `json:"platform"`
	// Distro is the Linux distribution found in the image, such as "debian 12"; empty if there is none.
	Distro string `json:"distro,omitempty"`
	// Packages is the number of packages in the SBOM.
	Packages int `json:"packages"`
	// Tool names the cataloguer and its version, such as "syft 1.57.0".
	Tool string `json:"tool"`
	// ManifestSizes are the bytes of the documents that lead from the image's digest to the platform's manifest, which is the last. It is the
	// only one if the image's digest is its own. An index comes before what it holds; what no runtime runs is followed by its configuration.
	ManifestSizes []int64 `json:"manifestSizes"`
	// SBOMSize and MatchInputSize are the bytes of these documents as sent, compressed.
	SBOMSize       int64 `json:"sbomSize"`
	MatchInputSize int64 `json:"matchInputSize"`
}

// Reasons of failures. They are part of the API that users see in an ImageScan's conditions.
const (
	ReasonImageNotFound      = "ImageNotFound"       // the registry does not have it (any more)
	ReasonUnauthorized       = "Unauthorized"        // the registry wants other or any credentials
	ReasonPullSecretMissing  = "PullSecretMissing"   // the registry wants credentials, and a Secret that may hold them is not there
	ReasonNodeCredentials    = "NodeCredentialsOnly" // only the nodes have credentials for the registry
	ReasonPlatformMismatch   = "PlatformMismatch"    // the image has no manifest for the platform
	ReasonNotAnImage         = "NotAnImage"          // an artefact, an unknown media type, a corrupt layer
	ReasonForeignLayer       = "ForeignLayer"        // a layer that is not in the registry, whatever other address the manifest names
	ReasonImageTooLarge      = "ImageTooLarge"       // unpacked, it needs more than the worker's scratch space
	ReasonScratchFull        = "ScratchFull"         // the node's disk was full before the scratch space was used up
	ReasonRegistryThrottled  = "RegistryThrottled"   // 429
	ReasonRegistryUnavail    = "RegistryUnavailable" // network, TLS, 5xx
	ReasonUploadRefused      = "UploadRefused"       // the ingest API said no
	ReasonSpoolBudget        = "SpoolBudgetExceeded" // the ingest API had no room for the upload for as long as the worker waits
	ReasonIngestUnreachable  = "IngestUnreachable"   // the ingest API cannot be reached
	ReasonCatalogFailed      = "CatalogFailed"       // anything else while cataloguing
	ReasonMatchFailed        = "MatchFailed"         // anything else while matching
	ReasonMatchTimedOut      = "MatchTimedOut"       // the match did not end within its deadline
	ReasonDatabaseUnreadable = "DatabaseUnreadable"  // the vulnerability database failed during matching
)

// Failure says why a worker could not do its work. Message is one line, without credentials, at most 1024 bytes.
type Failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// RetryAfterSeconds is what a registry asked for; 0 if it did not.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// Registry is the host that throttles, as it stands in image references; empty with all other reasons.
	Registry string `json:"registry,omitempty"`
}

// Database identifies one build of the vulnerability database.
type Database struct {
	// Built is the database's own build time: its identity, newer is better.
	Built time.Time `json:"built"`
	// SchemaVersion such as "v6.1.4".
	SchemaVersion string `json:"schemaVersion"`
	// Checksum of the distributed archive as the listing gives it, "sha256:<hex>"; empty if unknown.
	Checksum string `json:"checksum,omitempty"`
}

// DatabaseStatus is what a match worker says about its database: at its start, after each attempt to install
// another, and when the listing could not be read.
type DatabaseStatus struct {
	// Tool names the matcher and its version, such as "grype 0.121.2".
	Tool string `json:"tool"`
	// Installed is the open database; nil if there is none.
	Installed *Database `json:"installed,omitempty"`
	// Refused is a newer build that could not be installed; nil if there is none.
	Refused *Database `json:"refused,omitempty"`
	// Error says why the newest database could not be installed, in one line; empty if it was.
	Error string `json:"error,omitempty"`
}

// DatabaseOrder answers a DatabaseStatus.
type DatabaseOrder struct {
	// Wanted is the build time of the newest database that the manager knows of; zero if unknown.
	Wanted time.Time `json:"wanted,omitzero"`
}

// LeaseRequest asks for images to match.
type LeaseRequest struct {
	// Built is the build time of the database that the worker has open.
	Built time.Time `json:"built"`
	// Max is the greatest number of leases wanted, 1 to 100.
	Max int `json:"max"`
	// WaitSeconds is how long the server may wait for work before it answers with none, 0 to 60.
	WaitSeconds int `json:"waitSeconds"`
}

// LeaseResponse lends images to a match worker.
type LeaseResponse struct {
	Leases []Lease `json:"leases"`
	// Wanted is set when the worker should install a newer database first; then there are no leases.
	Wanted time.Time `json:"wanted,omitzero"`
}

// Lease is the right and duty to match one image. It ends with its report, its failure, or at Until.
type Lease struct {
	ID string `json:"id"`
	// Image names what is matched in logs: its platform manifest digest.
	Image string    `json:"image"`
	Until time.Time `json:"until"`
}

// Report is the result of matching one image, in the engine's own terms.
type Report struct {
	Database Database `json:"database"`
	// Tool names the matcher and its version, such as "grype 0.121.2".
	Tool   string `json:"tool"`
	Distro string `json:"distro,omitempty"`
	// Findings are complete: what is not here is not known to be wrong with the image.
	Findings []Finding `json:"findings"`
	// Ignored is the number of matches that the engine's own rules dropped.
	Ignored int `json:"ignored"`
}

// Finding is one match of an advisory with a package.
type Finding struct {
	// ID is the advisory's native id: CVE, GHSA, GO, ALAS, …
	ID string `json:"id"`
	// Namespace is the engine's name of the source, such as "debian:distro:debian:12".
	Namespace string `json:"namespace"`
	// Aliases are other ids of the same vulnerability.
	Aliases []string `json:"aliases,omitempty"`
	// Severity is Critical, High, Medium, Low, Negligible or Unknown.
	Severity    string `json:"severity"`
	Description string `json:"description,omitempty"`
	// URL of the advisory.
	URL string `json:"url,omitempty"`
	// FixState is fixed, not-fixed, wont-fix or unknown (or empty).
	FixState    string   `json:"fixState"`
	FixVersions []string `json:"fixVersions,omitempty"`
	// SuggestedFix is the one of FixVersions that suits the installed version best; may be empty.
	SuggestedFix string `json:"suggestedFix,omitempty"`
	// FixAvailable is when the fix was first seen by the database; zero if unknown.
	FixAvailable time.Time `json:"fixAvailable,omitzero"`
	CVSS         []CVSS    `json:"cvss,omitempty"`
	// EPSS is the probability of exploitation in the next 30 days, 0 to 1 (https://www.first.org/epss/); 0 if unknown.
	EPSS           float64 `json:"epss,omitempty"`
	EPSSPercentile float64 `json:"epssPercentile,omitempty"`
	// KnownExploited says that it is in CISA's catalog of known exploited vulnerabilities.
	KnownExploited bool `json:"knownExploited,omitempty"`
	// Risk is the engine's own score, 0 to 100.
	Risk float64 `json:"risk,omitempty"`
	// MatchTypes such as "exact-direct-match" or "cpe-match".
	MatchTypes []string   `json:"matchTypes,omitempty"`
	Package    Package    `json:"package"`
	Locations  []Location `json:"locations,omitempty"`
}

// CVSS is one rating.
type CVSS struct {
	Source  string  `json:"source,omitempty"`
	Version string  `json:"version"`
	Vector  string  `json:"vector"`
	Score   float64 `json:"score"`
}

// Package is what an advisory was matched with.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Type is the engine's package type: deb, apk, rpm, go-module, npm, …
	Type     string `json:"type"`
	Language string `json:"language,omitempty"`
	PURL     string `json:"purl,omitempty"`
	// Upstreams are the source packages that it was built from.
	Upstreams []string `json:"upstreams,omitempty"`
}

// Location is where the package was found.
type Location struct {
	Path string `json:"path"`
	// Layer is the digest of the uncompressed layer (diff ID).
	Layer string `json:"layer,omitempty"`
}
