package workerapi

import "time"

// Audience is the audience of the projected service account token that a worker presents as its bearer token.
const Audience = "scanner-operator-ingest"

// Files and environment variables in a worker's pod.
const (
	// TokenFile holds the projected service account token. The kubelet renews it: read it for every request.
	TokenFile = "/var/run/secrets/scanner-operator/token"
	// TerminationFile is where a failing worker writes its Failure as JSON. The manager reads it from the pod's status.
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

// Paths of the ingest API. Each request is authenticated. The manager's own record of the Job that the token's pod belongs to
// decides which image or lease the request may concern.
const (
	// PathCatalogResult takes PUT with the complete upload of a catalog Job, as ContentTypeCatalog. A Job uploads one result: the answer
	// to a repeated upload is the same, and a different upload is refused with 409. Status 507 means that there is no room at present.
	PathCatalogResult = "/v1/catalog/result"
	// PathUploadedSBOM answers GET with the SBOM that a user has uploaded for the image of a catalog Job, as ContentTypeUploadedSBOM. Status 410
	// means that it was replaced or withdrawn after the Job was created.
	PathUploadedSBOM = "/v1/catalog/uploaded-sbom"

	// PathDatabase takes POST with a DatabaseStatus and answers with a DatabaseOrder.
	PathDatabase = "/v1/match/database"
	// PathVulnerabilityIDs takes PUT with the IDs of all vulnerabilities that a database can find, zstd-compressed: in upper case, one per line, sorted
	// bytewise, each once. {built} is Database.Built as RFC 3339. Status 409 means that the manager's current data is another database.
	PathVulnerabilityIDs = "/v1/match/database/{built}/vulnerability-ids"
	// PathAlive takes POST with {}. A match worker that sends no other requests for long, for example while it installs a database,
	// reports with it that it is alive.
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
	// MaxVulnerabilityIDsBytes bounds the list of a database's vulnerability IDs. One of 390,000 CVEs and 385,000 other IDs, most of them as random
	// as GitHub's, has 3 MiB.
	MaxVulnerabilityIDsBytes = 4 << 20
	MaxJSONBytes             = 1 << 20
	// MaxManifestBytes bounds each index and manifest of a catalog Job's upload. MaxManifestsBytes bounds all of them together without
	// the last. MaxManifests bounds their number: indexes, manifests that no runtime runs with their configurations, and the platform's
	// manifest.
	MaxManifestBytes  = 4 << 20
	MaxManifestsBytes = 12 << 20
	MaxManifests      = 33
)

// Limits after decompression. More is refused with 413.
const (
	// MaxSBOMContentBytes bounds the SBOM in each format.
	MaxSBOMContentBytes       = 1 << 30
	MaxMatchInputContentBytes = 64 << 20
	MaxReportContentBytes     = 128 << 20
	// MaxVulnerabilityIDsContentBytes bounds a list of vulnerability IDs.
	MaxVulnerabilityIDsContentBytes = 32 << 20
)

// MaxVulnerabilityIDBytes bounds one ID in a list of vulnerability IDs. A list with a longer one, or with one that has other characters than printable
// ASCII, is refused with 422.
const MaxVulnerabilityIDBytes = 128

// MaxWindowBytes bounds the memory of decompression, whatever a body's header claims: a body with a larger zstd window is not read.
// Encoders use 8 MiB by default.
const MaxWindowBytes = 32 << 20

// MaxPackages bounds the packages of one image, and also the relationships in which one package belongs to another. A match worker
// holds all of them in memory. More are refused with 422.
const MaxPackages = 100_000

// MaxSBOMSignerBytes and MaxSBOMProblemBytes bound what a result says about an attested SBOM. More is cut off.
const (
	MaxSBOMSignerBytes  = 256
	MaxSBOMProblemBytes = 512
)

// Limits inside a report, since a few bytes of JSON can take much memory when decoded. More is refused with 413.
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
	// ContentTypeCatalog is a CatalogResult as one line of JSON, followed by the documents whose sizes it contains, in the order of its
	// fields: indexes and manifest as the registry sent them, then the syft-json SBOM, the match input and the SBOM in additional formats, all
	// zstd-compressed, and at last the OpenVEX documents as they were signed.
	ContentTypeCatalog = "application/vnd.scanner-operator.catalog"
	// ContentTypeUploadedSBOM is an UploadedSBOM as one line of JSON, followed by the documents whose sizes it contains, and then by the SBOM,
	// zstd-compressed, in the form in which it was uploaded.
	ContentTypeUploadedSBOM = "application/vnd.scanner-operator.uploaded-sbom"
)

// DigestHeader carries "sha256:<hex>" of an upload's body as sent. A body with another digest, such as a truncated one,
// is refused with 400.
const DigestHeader = "X-Content-Digest"

// Registry configures the access to one registry.
type Registry struct {
	// Host is the registry's host name, with its port unless that is the scheme's default.
	Host string `json:"host"`
	// PlainHTTP allows HTTP without TLS for this host only.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// CABundle are PEM certificates of CAs that may sign this host's certificate, beside the well-known CAs.
	CABundle string `json:"caBundle,omitempty"`
	// Mirrors are tried before the registry itself. Each is a host with or without a path, which is put before the repository.
	Mirrors []string `json:"mirrors,omitempty"`
	// Provider is the cloud whose identity pulls from the registry: one of the Provider constants; empty for none.
	Provider string `json:"provider,omitempty"`
	// SBOM configures where the SBOMs of the registry's images come from.
	SBOM SBOMSource `json:"sbom,omitzero"`
	// VEX configures which OpenVEX documents about the registry's images count.
	VEX VEXSource `json:"vex,omitzero"`
}

// CatalogResult is the beginning of a catalog Job's upload. It does not contain the platform's manifest, or its relation to the image:
// the manager computes both from the documents that follow.
type CatalogResult struct {
	// Image is the reference that the image was pulled by.
	Image string `json:"image"`
	// Platform is the one that the image was requested for, os/architecture[/variant].
	Platform string `json:"platform"`
	// Distro is the Linux distribution found in the image, such as "debian 12"; empty if there is none.
	Distro string `json:"distro,omitempty"`
	// Packages is the number of packages in the SBOM.
	Packages int `json:"packages"`
	// Tool is the name and version of the cataloger, such as "syft 1.57.0".
	Tool string `json:"tool"`
	// SBOMSigner is who signed the SBOM that came with the image; empty if the image's content was cataloged.
	SBOMSigner string `json:"sbomSigner,omitempty"`
	// UploadedSBOM is true if the SBOM is the one that a user has uploaded for the image.
	UploadedSBOM bool `json:"uploadedSBOM,omitempty"`
	// SBOMProblem is why no attested SBOM was used, or why the image's content could not be cataloged and the uploaded SBOM was used, in one line of
	// at most MaxSBOMProblemBytes. Empty if an attested SBOM was used, or no SBOM was wanted.
	SBOMProblem string `json:"sbomProblem,omitempty"`
	// VEXProblem is why attached OpenVEX documents are not accepted, in one line of at most MaxVEXProblemBytes; empty if there is no such document.
	VEXProblem string `json:"vexProblem,omitempty"`
	// VEXUnread is true if an attached OpenVEX document of a trusted signer may be missing in VEX. It may say that the image is affected.
	VEXUnread bool `json:"vexUnread,omitempty"`
	// ManifestSizes are the sizes in bytes of the documents that lead from the image's digest to the platform's manifest, which is the
	// last. It is the only one if the image's digest is its own. An index comes before its children. A manifest that no runtime runs is
	// followed by its configuration.
	ManifestSizes []int64 `json:"manifestSizes"`
	// SBOMSize and MatchInputSize are the sizes of these documents in bytes as sent, compressed.
	SBOMSize       int64 `json:"sbomSize"`
	MatchInputSize int64 `json:"matchInputSize"`
	// Additional are the SBOM's additional formats, each at most once.
	Additional []FormattedSBOM `json:"additional,omitempty"`
	// VEX are the accepted OpenVEX documents, at most MaxVEXDocuments with MaxVEXBytes. They come last, uncompressed.
	VEX []VEXDocument `json:"vex,omitempty"`
}

// UploadedSBOM is the beginning of what a catalog Job gets from PathUploadedSBOM.
type UploadedSBOM struct {
	// ManifestSizes are as in CatalogResult.
	ManifestSizes []int64 `json:"manifestSizes"`
}

// MaxUploadedSBOMBytes bounds the content of an uploaded SBOM.
const MaxUploadedSBOMBytes = 64 << 20

// FormattedSBOM is the SBOM in an additional format.
type FormattedSBOM struct {
	// Format is one of AdditionalFormats.
	Format string `json:"format"`
	// Size is that of the document in bytes as sent, compressed.
	Size int64 `json:"size"`
}

// Formats of an SBOM in addition to syft-json, by Syft's names.
const (
	FormatCycloneDX = "cyclonedx-json" // CycloneDX 1.6
	FormatSPDX      = "spdx-json"      // SPDX 2.3
)

// AdditionalFormats are the formats in which a catalog Job can upload an SBOM in addition to syft-json.
var AdditionalFormats = []string{FormatCycloneDX, FormatSPDX}

// Reasons of failures. They are part of the API that users see in an ImageScan's conditions.
const (
	ReasonImageNotFound      = "ImageNotFound"       // the registry does not have the image, or not any more
	ReasonUnauthorized       = "Unauthorized"        // the registry requires credentials, and accepts none of those available
	ReasonPullSecretMissing  = "PullSecretMissing"   // the registry requires credentials, and a Secret that may hold them is missing or unusable
	ReasonNodeCredentials    = "NodeCredentialsOnly" // only the nodes have credentials for the registry
	ReasonIdentityMissing    = "IdentityMissing"     // the registry has a provider, and the worker's pod has no identity of that cloud
	ReasonPlatformMismatch   = "PlatformMismatch"    // the image has no manifest for the platform
	ReasonNotAnImage         = "NotAnImage"          // an artifact, an unknown media type, a corrupt layer
	ReasonForeignLayer       = "ForeignLayer"        // a layer is not in the registry; other addresses in the manifest are not used
	ReasonImageTooLarge      = "ImageTooLarge"       // the image needs more than the worker's scratch space, or its SBOM exceeds a limit
	ReasonScratchFull        = "ScratchFull"         // the node's disk was full before the scratch space was used up
	ReasonRegistryThrottled  = "RegistryThrottled"   // the registry limits the rate of requests (429)
	ReasonRegistryUnavail    = "RegistryUnavailable" // network, TLS, 5xx
	ReasonUploadRefused      = "UploadRefused"       // the ingest API refused the upload
	ReasonSpoolBudget        = "SpoolBudgetExceeded" // the ingest API had no room for the upload until the worker's deadline
	ReasonIngestUnreachable  = "IngestUnreachable"   // the ingest API cannot be reached
	ReasonCatalogFailed      = "CatalogFailed"       // anything else while cataloging
	ReasonMatchFailed        = "MatchFailed"         // anything else while matching
	ReasonMatchTimedOut      = "MatchTimedOut"       // the match did not end within its deadline
	ReasonDatabaseUnreadable = "DatabaseUnreadable"  // the vulnerability database failed during matching
)

// Failure describes why a worker failed. Message is one line, without credentials, at most 1024 bytes.
type Failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// RetryAfterSeconds is the wait that a registry asked for; 0 if it did not ask for one.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// Registry is the host of the throttling registry, as in image references; empty with all other reasons.
	Registry string `json:"registry,omitempty"`
}

// Database identifies one build of the vulnerability database.
type Database struct {
	// Built is the database's own build time. It identifies the build: a later one is newer.
	Built time.Time `json:"built"`
	// SchemaVersion is that of the database, such as "v6.1.4".
	SchemaVersion string `json:"schemaVersion"`
	// Checksum is that of the distributed archive as in the listing, "sha256:<hex>"; empty if unknown.
	Checksum string `json:"checksum,omitempty"`
}

// DatabaseStatus is a match worker's report about its database. The worker sends it at its start, after each attempt to install
// another database, and if the listing could not be read.
type DatabaseStatus struct {
	// Tool is the name and version of the matcher, such as "grype 0.121.2".
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
	// SendIDs means that the manager has no list of the vulnerability IDs of the installed database: the worker should send it to
	// PathVulnerabilityIDs.
	SendIDs bool `json:"sendIDs,omitempty"`
}

// LeaseRequest requests images to match.
type LeaseRequest struct {
	// Built is the build time of the database that the worker has open.
	Built time.Time `json:"built"`
	// Max is the greatest number of leases wanted, 1 to 100.
	Max int `json:"max"`
	// WaitSeconds is how long the server may wait for work before it answers with none, 0 to 60.
	WaitSeconds int `json:"waitSeconds"`
	// Held are the IDs of the leases that the worker has in progress. All other leases of its Job return to the queue: their answers were lost.
	Held []string `json:"held,omitempty"`
}

// LeaseResponse assigns images to a match worker.
type LeaseResponse struct {
	Leases []Lease `json:"leases"`
	// Wanted is set if the worker should install a newer database first. There are no leases then.
	Wanted time.Time `json:"wanted,omitzero"`
}

// Lease assigns one image to a match worker, which must match it. It ends with its report, with its failure, or at Until.
type Lease struct {
	ID string `json:"id"`
	// Image identifies the image in logs by its platform manifest digest.
	Image string    `json:"image"`
	Until time.Time `json:"until"`
}

// Report is the result of matching one image, in the engine's own terms.
type Report struct {
	Database Database `json:"database"`
	// Tool is the name and version of the matcher, such as "grype 0.121.2".
	Tool   string `json:"tool"`
	Distro string `json:"distro,omitempty"`
	// Findings are complete: a vulnerability that is not among them was not found in the image.
	Findings []Finding `json:"findings"`
	// Ignored is the number of matches that the engine's own rules dropped.
	Ignored int `json:"ignored"`
	// NotCovered are the packages of the image that the engine has no data about, such as "OS packages (deb)" or "OS packages (deb) of debian 7", and
	// the distributions whose data has ended, such as "debian 9: no security updates since 2022-06-30". Beyond 64 distributions, one entry says that the
	// others were not looked up. At most MaxNotCovered of MaxNotCoveredBytes.
	NotCovered []string `json:"notCovered,omitempty"`
}

// Bounds of Report.NotCovered.
const (
	MaxNotCovered      = 14
	MaxNotCoveredBytes = 64 // of one entry
)

// OSPackages begins the entries of Report.NotCovered about packages of a distribution, except those about one that has ended.
const OSPackages = "OS packages"

// NoUpdatesSince is in an entry of Report.NotCovered between the name of a distribution that has ended and the day since when.
const NoUpdatesSince = ": no security updates since "

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
	// SuggestedFix is the entry of FixVersions that suits the installed version best; may be empty.
	SuggestedFix string `json:"suggestedFix,omitempty"`
	// FixAvailable is when the fix was first seen by the database; zero if unknown.
	FixAvailable time.Time `json:"fixAvailable,omitzero"`
	CVSS         []CVSS    `json:"cvss,omitempty"`
	// EPSS is the probability of exploitation in the next 30 days, 0 to 1 (https://www.first.org/epss/); 0 if unknown.
	EPSS           float64 `json:"epss,omitempty"`
	EPSSPercentile float64 `json:"epssPercentile,omitempty"`
	// KnownExploited is true if the vulnerability is in CISA's catalog of known exploited vulnerabilities.
	KnownExploited bool `json:"knownExploited,omitempty"`
	// Risk is the engine's own score, 0 to 100.
	Risk float64 `json:"risk,omitempty"`
	// MatchTypes are Grype's, such as "exact-direct-match" or "cpe-match".
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

// Package is the package that an advisory was matched with.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Type is the engine's package type: deb, apk, rpm, go-module, npm, …
	Type     string `json:"type"`
	Language string `json:"language,omitempty"`
	PURL     string `json:"purl,omitempty"`
	// Upstreams are the source packages that the package was built from.
	Upstreams []string `json:"upstreams,omitempty"`
}

// Location is where the package was found.
type Location struct {
	Path string `json:"path"`
	// Layer is the digest of the uncompressed layer (diff ID).
	Layer string `json:"layer,omitempty"`
}
