// Package config is the operator's configuration file: what the administrator of a cluster decides once for all Scanners. It reads the
// file, fills in defaults and validates. It does not depend on the code that uses the values.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Config is the content of the configuration file.
type Config struct {
	// ClusterName names the cluster in messages, documents, metrics and the web UI, so that readers of several clusters tell them apart. At most 63
	// letters, digits, dots, dashes and underscores; the first and the last are a letter or a digit. Default empty: nothing names the cluster.
	ClusterName string `json:"clusterName,omitempty"`
	// Grype configures the Grype backend.
	Grype Grype `json:"grype"`
	// Clair configures the Clair backend.
	Clair Clair `json:"clair"`
	// Notifications configures when receivers get health notices, and how long sent messages are kept.
	Notifications Notifications `json:"notifications"`
	// Store configures where findings and the record of announcements are kept.
	Store Store `json:"store"`
	// Limits bound what the operator does for one namespace.
	Limits Limits `json:"limits"`
	// Ingest bounds what catalog Jobs may upload.
	Ingest Ingest `json:"ingest"`
	// UI configures the web UI.
	UI UI `json:"ui"`
	// Metrics configures the metrics of single images.
	Metrics Metrics `json:"metrics"`
	// OpenReports configures Reports for other tools.
	OpenReports OpenReports `json:"openReports"`
	// Registries configures how to reach registries that need more than the defaults. Each host is listed once.
	Registries []Registry `json:"registries,omitempty"`
}

// Ingest bounds what catalog Jobs may upload, so that one namespace cannot use up the space of others.
type Ingest struct {
	// SpoolSize is the maximum size of all uploads in progress together. The volume of the manager's pod needs that space. Default 1Gi, at
	// least 1Mi.
	SpoolSize resource.Quantity `json:"spoolSize"`
	// SpoolSizePerNamespace is how much of SpoolSize the uploads for the Scanners of one namespace may use. A larger upload is refused.
	// Default 256Mi, at least 1Mi and at most spoolSize.
	SpoolSizePerNamespace resource.Quantity `json:"spoolSizePerNamespace"`
	// StoreSizePerNamespace is the most bytes of SBOMs and findings that the store keeps on behalf of the Scanners of one namespace: images
	// that are new there fail beyond that. The records of what was announced to its receivers have as much room again. Default 1Gi, at least 1Mi.
	StoreSizePerNamespace resource.Quantity `json:"storeSizePerNamespace"`
}

// Grype configures the Grype backend.
type Grype struct {
	Database Database `json:"database"`
	Catalog  Catalog  `json:"catalog"`
	Match    Match    `json:"match"`
}

// Database configures where vulnerability data comes from.
type Database struct {
	// URL of the listing; "/v6/latest.json" is appended unless it ends in ".json", as Grype does.
	// Default https://grype.anchore.io/databases.
	URL string `json:"url"`
	// CABundle holds PEM certificates of authorities that may sign that server's certificate, in addition to the well-known ones. At most
	// 64 KiB.
	CABundle string `json:"caBundle,omitempty"`
	// PollInterval is how often the listing is read. Default 1h, at least 5s.
	PollInterval metav1.Duration `json:"pollInterval"`
	// MaxAge is the age from which the data counts as too old. A Scanner's condition then reports it. Default 120h, as Grype's own
	// (https://github.com/anchore/grype, db.max-allowed-built-age), at least 1h.
	MaxAge metav1.Duration `json:"maxAge"`
	// Volume configures where databases are kept between match workers.
	Volume DatabaseVolume `json:"volume"`
}

// DatabaseVolume configures where match workers keep databases.
type DatabaseVolume struct {
	// ClaimName is the name of an existing PersistentVolumeClaim in the operator's namespace. Empty: the operator creates one if the
	// cluster has a default StorageClass, and uses an emptyDir otherwise.
	ClaimName string `json:"claimName,omitempty"`
	// Size of the volume. Default 10Gi: a database takes about 1 GiB, and two versions are kept.
	Size resource.Quantity `json:"size"`
}

// Catalog configures the Jobs that catalog images.
type Catalog struct {
	// MaxJobs is the maximum number of concurrent catalog Jobs in the cluster, 1 to 1000. Default 4.
	MaxJobs int `json:"maxJobs"`
	// MaxJobsPerNamespace is how many of these Jobs may be for all Scanners of one namespace together, 1 to 1000. The bound is not per
	// Scanner, since users may create many. Default 3: one namespace never takes all slots.
	MaxJobsPerNamespace int `json:"maxJobsPerNamespace"`
	// Deadline of one Job, at least 10s. Default 15m.
	Deadline metav1.Duration `json:"deadline"`
	// Resources of a Job's container. Default: requests 100m CPU and 512Mi, limit 2Gi memory.
	Resources corev1.ResourceRequirements `json:"resources"`
	// Placement of the Jobs in the operator's namespace. A Scanner has settings of its own for Jobs in its namespace.
	Placement `json:",inline"`
	// MemoryLadder lists memory limits in ascending order. An image whose Job was killed for exceeding its memory limit is retried with the
	// next higher one. At most 8. Default 4Gi, 8Gi.
	MemoryLadder []resource.Quantity `json:"memoryLadder"`
	// ScratchSize bounds the uncompressed layers of one image. Default 10Gi.
	ScratchSize resource.Quantity `json:"scratchSize"`
	// AdditionalFormats are the formats in which SBOMs are stored besides syft-json: cyclonedx-json (CycloneDX 1.6) and spdx-json (SPDX 2.3).
	// They are made when an image is cataloged: images that are cataloged already lack them. Default: none.
	AdditionalFormats []string `json:"additionalFormats,omitempty"`
	// History configures how many finished Jobs are kept for inspection.
	History JobHistory `json:"history"`
}

// JobHistory configures how many finished catalog Jobs are kept, and how long. They take no slots from running Jobs.
type JobHistory struct {
	// Failed and Succeeded are the numbers of finished Jobs that are kept in the cluster for the Scanners of one namespace, the latest
	// ones. At most 1000 each. Default 10 and 0.
	Failed    int `json:"failed"`
	Succeeded int `json:"succeeded"`
	// TTL is the longest time that a finished Job is kept, 1m to 168h. Default 1h. A manager that is down for longer does not learn how
	// Jobs ended, and retries their images.
	TTL metav1.Duration `json:"ttl"`
}

// Match configures the match workers.
type Match struct {
	// MaxWorkers is the maximum number of concurrent match workers, 1 to 100. Default 2.
	MaxWorkers int `json:"maxWorkers"`
	// ImagesPerWorker is the length of the queue from which another worker is started. Default 500.
	ImagesPerWorker int `json:"imagesPerWorker"`
	// IdleTimeout is how long a worker without work stays ready. Default 10m, at least 1s.
	IdleTimeout metav1.Duration `json:"idleTimeout"`
	// Deadline is how long the match of one image may take, 10s to 1h. Default 5m.
	Deadline metav1.Duration `json:"deadline"`
	// Resources of a worker's container. Default: requests 100m CPU and 256Mi, limit 1Gi memory.
	Resources corev1.ResourceRequirements `json:"resources"`
	// Placement of the workers.
	Placement `json:",inline"`
}

// Notifications configures when receivers get health notices, and how long sent messages are kept.
type Notifications struct {
	// ScansFailingAfter is how long images may wait while none of them gets a result, or the engine may be unavailable, before receivers
	// get a health notice. Default 6h, between 1m and 720h.
	ScansFailingAfter metav1.Duration `json:"scansFailingAfter"`
	// ImagesFailedAfter is how long an image must have failed before receivers get a health notice. Default 1h, between 1m and 720h.
	ImagesFailedAfter metav1.Duration `json:"imagesFailedAfter"`
	// LogRetention is how long sent messages are kept. Default 2160h (90 days), between 1h and 87600h.
	LogRetention metav1.Duration `json:"logRetention"`
}

// Limits bound what the operator does for one namespace, whose users may create any number of Scanners and pods.
type Limits struct {
	// ScannersPerNamespace is how many Scanners of one namespace the operator handles, the oldest ones. The others are Stalled with the
	// reason TooManyScanners. Default 20, between 1 and 1000.
	ScannersPerNamespace int `json:"scannersPerNamespace"`
	// ImageScansPerNamespace is how many ImageScans one namespace may have before the operator creates no more there. Default 5000, between
	// 1 and 100000.
	ImageScansPerNamespace int `json:"imageScansPerNamespace"`
}

// The largest values of Metrics.MaxImages and OpenReports.MaxResults.
const (
	MaxImageMetrics  = 10_000
	MaxReportResults = 500
)

// Metrics configures the metrics of single images. Prometheus stores each of them as eight time series.
type Metrics struct {
	// MaxImages is how many images have metrics of their own, over all Scanners, the worst ones. An image counts once for each Scanner and
	// namespace. Default 0: none. At most MaxImageMetrics.
	MaxImages int `json:"maxImages"`
}

// OpenReports configures the Reports of https://openreports.io, one for each workload, which other tools show.
type OpenReports struct {
	// Mode is what happens with Reports: none is written (None), each workload has one (Write), or those that were written are deleted (Remove).
	// Default None. The others need a CustomResourceDefinition and permissions.
	Mode string `json:"mode"`
	// MaxResults is how many findings a Report lists, the worst ones. Default 50, between 1 and MaxReportResults.
	MaxResults int `json:"maxResults"`
}

// Modes of OpenReports.
const (
	ReportsNone   = "None"
	ReportsWrite  = "Write"
	ReportsRemove = "Remove"
)

func (o OpenReports) validate(errs *fieldErrors) {
	errs.check(slices.Contains([]string{ReportsNone, ReportsWrite, ReportsRemove}, o.Mode), "openReports.mode", "must be None, Write or Remove, not %q", o.Mode)
	errs.checkRange("openReports.maxResults", o.MaxResults, 1, MaxReportResults)
}

// Registry configures how to reach one registry.
type Registry struct {
	// Host is the host name as in image references, with its port if it has one there. Docker Hub is docker.io.
	Host string `json:"host"`
	// PlainHTTP allows HTTP without TLS for this host.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// CABundle holds PEM certificates of authorities that may sign this host's certificate, in addition to the well-known ones. They are
	// trusted for no other host. All entries of registries together may take 100 KiB as JSON.
	CABundle string `json:"caBundle,omitempty"`
	// Mirrors are tried before the registry itself, in this order. Each is a host with or without a path, which comes before the repository
	// ("mirror.example.com/dockerhub"). How to reach a mirror is configured by an entry of its own. At most 8.
	Mirrors []string `json:"mirrors,omitempty"`
	// Provider is the cloud whose identity pulls from the registry: aws, gcp or azure, for a host of that cloud. Catalog Jobs for such a
	// registry run under the ServiceAccount scanner-operator-catalog. It excludes plainHTTP and caBundle. Default: none.
	Provider string `json:"provider,omitempty"`
	// SBOM configures where the SBOMs of the registry's images come from, for Grype. With prefer: Attestation, an SBOM that is attached to an
	// image replaces its catalog if one of the signers has signed it. At most 16 signers. Default: images are cataloged.
	SBOM workerapi.SBOMSource `json:"sbom,omitzero"`
	// VEX configures which OpenVEX documents about the registry's images count: by default none.
	VEX workerapi.VEXSource `json:"vex,omitzero"`
}

// Clair configures the Clair backend.
type Clair struct {
	// Instances are the Clairs that Scanners may name in backend.clair.url. Other URLs are refused. At most 64.
	Instances []ClairInstance `json:"instances,omitempty"`
	// PollInterval is how often each Clair is polled for changes of its vulnerability data. Default 1m, at least 5s.
	PollInterval metav1.Duration `json:"pollInterval"`
	// MaxAge is the age from which the newest vulnerability data counts as too old. A Scanner's condition then reports it. Default 120h, at
	// least 1h.
	MaxAge metav1.Duration `json:"maxAge"`
	// MaxIndexing is the number of images that one Clair indexes for the operator at the same time. Default 4, since Clair refuses more
	// than four for each of its CPUs, from all clients together. Between 1 and 100.
	MaxIndexing int `json:"maxIndexing"`
	// MaxIndexingPerNamespace is how many of these images may be for Scanners of one namespace. Default 2. Between 1 and 100.
	MaxIndexingPerNamespace int `json:"maxIndexingPerNamespace"`
	// IndexTimeout bounds how long Clair may take to fetch and index one image. Default 10m, between 10s and 1h.
	IndexTimeout metav1.Duration `json:"indexTimeout"`
	// ReportsPerSecond bounds how fast reports are read from one Clair after its data has changed. Default 20, between 1 and 1000.
	ReportsPerSecond int `json:"reportsPerSecond"`
}

// ClairInstance is a Clair that Scanners may use.
type ClairInstance struct {
	// URL of the Clair's API. Scanners may name it in any equivalent spelling.
	URL string `json:"url"`
	// CABundle holds PEM certificates of authorities that may sign Clair's certificate, in addition to the well-known ones. A Scanner
	// cannot name others, since reports of all namespaces are read over the same connection.
	CABundle string `json:"caBundle,omitempty"`
	// Updaters are the names of the updaters that must have run before reports count as complete, such as "debian/updater" or "osv/go". "*"
	// matches any characters. Unset, or with a "*": reports count once no updater has completed for the first time for ten minutes.
	Updaters []string `json:"updaters,omitempty"`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{Clair: defaultClair(), Notifications: defaultNotifications(), Store: Store{Type: SQLite}, UI: UI{Enabled: true}, OpenReports: OpenReports{Mode: ReportsNone, MaxResults: 50}, Limits: defaultLimits(), Ingest: defaultIngest(), Grype: Grype{
		Database: Database{
			URL:          "https://grype.anchore.io/databases",
			PollInterval: metav1.Duration{Duration: time.Hour}, MaxAge: metav1.Duration{Duration: 120 * time.Hour},
			Volume: DatabaseVolume{Size: resource.MustParse("10Gi")},
		},
		Catalog: Catalog{
			MaxJobs: 4, MaxJobsPerNamespace: 3, Deadline: metav1.Duration{Duration: 15 * time.Minute},
			Resources: resources("100m", "512Mi", "2Gi"), ScratchSize: resource.MustParse("10Gi"),
			MemoryLadder: []resource.Quantity{resource.MustParse("4Gi"), resource.MustParse("8Gi")},
			History:      JobHistory{Failed: 10, TTL: metav1.Duration{Duration: time.Hour}},
		},
		Match: Match{
			MaxWorkers: 2, ImagesPerWorker: 500, IdleTimeout: metav1.Duration{Duration: 10 * time.Minute},
			Deadline:  metav1.Duration{Duration: 5 * time.Minute},
			Resources: resources("100m", "256Mi", "1Gi"),
		},
	}}
}

func defaultClair() Clair {
	return Clair{
		PollInterval: metav1.Duration{Duration: time.Minute}, MaxAge: metav1.Duration{Duration: 120 * time.Hour},
		MaxIndexing: 4, MaxIndexingPerNamespace: 2, IndexTimeout: metav1.Duration{Duration: 10 * time.Minute}, ReportsPerSecond: 20,
	}
}

func defaultIngest() Ingest {
	return Ingest{
		SpoolSize: resource.MustParse("1Gi"), SpoolSizePerNamespace: resource.MustParse("256Mi"), StoreSizePerNamespace: resource.MustParse("1Gi"),
	}
}

func defaultNotifications() Notifications {
	return Notifications{
		ScansFailingAfter: metav1.Duration{Duration: 6 * time.Hour}, ImagesFailedAfter: metav1.Duration{Duration: time.Hour},
		LogRetention: metav1.Duration{Duration: 90 * 24 * time.Hour},
	}
}

func defaultLimits() Limits { return Limits{ScannersPerNamespace: 20, ImageScansPerNamespace: 5000} }

func resources(cpu, request, limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(request)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
	}
}

// additionalFile is the path of a second file, from the directory of the configuration file. Installers mount it together with the data
// source name of a server, since kustomize and OLM cannot change a part of a file.
const additionalFile = "store/config.yaml"

// Load reads a file over the defaults, and over both the file store/config.yaml beside it, if there is one. An empty path returns the defaults.
// Unknown fields are errors, since a misspelled setting would otherwise have no effect.
func Load(path string) (Config, error) {
	config := Default()
	if path == "" {
		return config, nil
	}
	if err := readOver(&config, path); err != nil {
		return Config{}, err
	}
	if err := readOver(&config, filepath.Join(filepath.Dir(path), additionalFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Config{}, err
	}
	config.Store.complete()
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	config.Grype.Database.CABundle, _ = extractCertificates(config.Grype.Database.CABundle)
	for i := range config.Clair.Instances {
		config.Clair.Instances[i].CABundle, _ = extractCertificates(config.Clair.Instances[i].CABundle)
	}
	for i := range config.Registries {
		config.Registries[i].CABundle, _ = extractCertificates(config.Registries[i].CABundle) // Validate has parsed it already
	}
	return config, nil
}

func readOver(config *Config, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := decode(text, config); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

// Validate returns an error that names every invalid field.
func (c Config) Validate() error {
	var errs fieldErrors
	database, catalog, match := c.Grype.Database, c.Grype.Catalog, c.Grype.Match
	errs.checkURL("grype.database.url", database.URL)
	errs.checkCABundle("grype.database.caBundle", database.CABundle)
	errs.check(len(database.CABundle) <= maxDatabaseBundle, "grype.database.caBundle", "must be at most 64 KiB: shorten it to the authorities that are needed")
	errs.check(database.PollInterval.Duration >= 5*time.Second, "grype.database.pollInterval", "must be at least 5s")
	errs.check(database.MaxAge.Duration >= time.Hour, "grype.database.maxAge", "must be at least 1h")
	errs.check(database.Volume.Size.Sign() > 0, "grype.database.volume.size", "must be more than 0")
	errs.checkRange("grype.catalog.maxJobs", catalog.MaxJobs, 1, 1000)
	errs.checkRange("grype.catalog.maxJobsPerNamespace", catalog.MaxJobsPerNamespace, 1, 1000)
	catalog.validateMemory(&errs)
	catalog.Placement.validate(&errs, "grype.catalog")
	match.Placement.validate(&errs, "grype.match")
	catalog.validateFormats(&errs)
	history := catalog.History
	errs.checkRange("grype.catalog.history.failed", history.Failed, 0, 1000)
	errs.checkRange("grype.catalog.history.succeeded", history.Succeeded, 0, 1000)
	errs.check(history.TTL.Duration >= time.Minute && history.TTL.Duration <= 7*24*time.Hour, "grype.catalog.history.ttl", "must be between 1m and 168h")
	errs.check(catalog.Deadline.Duration >= 10*time.Second, "grype.catalog.deadline", "must be at least 10s")
	errs.check(catalog.ScratchSize.Sign() > 0, "grype.catalog.scratchSize", "must be more than 0")
	errs.checkRange("grype.match.maxWorkers", match.MaxWorkers, 1, 100)
	errs.check(match.ImagesPerWorker >= 1, "grype.match.imagesPerWorker", "must be at least 1")
	errs.check(match.IdleTimeout.Duration >= time.Second, "grype.match.idleTimeout", "must be at least 1s")
	errs.checkRange("limits.scannersPerNamespace", c.Limits.ScannersPerNamespace, 1, 1000)
	errs.checkRange("limits.imageScansPerNamespace", c.Limits.ImageScansPerNamespace, 1, 100_000)
	errs.check(match.Deadline.Duration >= 10*time.Second && match.Deadline.Duration <= time.Hour, "grype.match.deadline", "must be between 10s and 1h")
	errs.checkRange("metrics.maxImages", c.Metrics.MaxImages, 0, MaxImageMetrics)
	errs.check(clusterNamePattern.MatchString(c.ClusterName), "clusterName",
		"must be empty, or at most 63 letters, digits, dots, dashes and underscores that begin and end with a letter or a digit")
	c.validateRegistries(&errs)
	c.Clair.validate(&errs)
	c.Notifications.validate(&errs)
	c.Ingest.validate(&errs)
	c.Store.validate(&errs)
	c.UI.validate(&errs)
	c.OpenReports.validate(&errs)
	return errors.Join(errs...)
}

// minIngestSize is the minimum of each size in Ingest. SBOMs of small images fit.
var minIngestSize = resource.MustParse("1Mi")

func (i Ingest) validate(errs *fieldErrors) {
	errs.check(i.SpoolSize.Cmp(minIngestSize) >= 0, "ingest.spoolSize", "must be at least 1Mi")
	errs.check(i.SpoolSizePerNamespace.Cmp(minIngestSize) >= 0, "ingest.spoolSizePerNamespace", "must be at least 1Mi")
	errs.check(i.StoreSizePerNamespace.Cmp(minIngestSize) >= 0, "ingest.storeSizePerNamespace", "must be at least 1Mi")
	errs.check(i.SpoolSize.Cmp(minIngestSize) < 0 || i.SpoolSizePerNamespace.Cmp(i.SpoolSize) <= 0,
		"ingest.spoolSizePerNamespace", "must be at most ingest.spoolSize")
}

func (n Notifications) validate(errs *fieldErrors) {
	check := func(value metav1.Duration, least, most time.Duration, field, want string) {
		errs.check(value.Duration >= least && value.Duration <= most, "notifications."+field, "must be between %s", want)
	}
	check(n.ScansFailingAfter, time.Minute, 720*time.Hour, "scansFailingAfter", "1m and 720h")
	check(n.ImagesFailedAfter, time.Minute, 720*time.Hour, "imagesFailedAfter", "1m and 720h")
	check(n.LogRetention, time.Hour, 87600*time.Hour, "logRetention", "1h and 87600h")
}

// validateMemory requires an ascending memory ladder. Entries that are not above the limit of the first attempt are skipped later. Raising
// that limit therefore needs no other change.
func (c Catalog) validateMemory(errs *fieldErrors) {
	limit, request := c.Resources.Limits[corev1.ResourceMemory], c.Resources.Requests[corev1.ResourceMemory]
	errs.check(limit.IsZero() || request.Cmp(limit) <= 0, "grype.catalog.resources.requests.memory", "%s is more than the limit of %s", request.String(), limit.String())
	errs.check(len(c.MemoryLadder) <= maxMemoryLadder, "grype.catalog.memoryLadder", "more than %d limits", maxMemoryLadder)
	var before resource.Quantity
	for i, rung := range c.MemoryLadder {
		errs.check(rung.Cmp(before) > 0, fmt.Sprintf("grype.catalog.memoryLadder[%d]", i), "%s must be more than %s, which comes before it", rung.String(), before.String())
		before = rung
	}
}

func (c Catalog) validateFormats(errs *fieldErrors) {
	for i, format := range c.AdditionalFormats {
		field := fmt.Sprintf("grype.catalog.additionalFormats[%d]", i)
		errs.check(slices.Contains(workerapi.AdditionalFormats, format), field, "%q must be one of %s; syft-json is always stored",
			format, strings.Join(workerapi.AdditionalFormats, ", "))
		errs.check(!slices.Contains(c.AdditionalFormats[:i], format), field, "%q is listed twice", format)
	}
}

// maxDatabaseBundle is in bytes. The bundle is an argument of the match worker, and Linux limits one argument to 128 KiB.
const maxDatabaseBundle = 64 << 10

// clusterNamePattern is that of the value of a label in Kubernetes. It has no character that Slack, Markdown, HTML or a URL treats specially.
var clusterNamePattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)

// maxMemoryLadder is the maximum length of a memory ladder, as in a Scanner.
const maxMemoryLadder = 8
