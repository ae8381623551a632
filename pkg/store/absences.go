package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// WorkloadSubject is a finding in the images of one repository that a workload runs.
type WorkloadSubject struct {
	Namespace, Kind, Name, Repository string
	ID, Package                       string
}

// WorkloadFacts are what the store knows about a WorkloadSubject.
type WorkloadFacts struct {
	// Runs means that the workload runs an image of the repository, or that its last pods have ended recently.
	Runs bool
	// Images are its names for these images.
	Images []exception.Image
	// Facts of the engine and the announced sources. Complete means that each image has a report. SameEngine and SourcesReported are the caller's.
	evidence.Facts
	// Sources are the announced sources with a report that has the finding, and Silent those without a report about one of the images. Both are
	// sorted.
	Sources, Silent []string
	// Types are the types of the packages that have the finding, sorted. Only WorkloadEvidence sets them.
	Types []string
	// Gaps is what the engine's reports on the images do not cover, sorted. Only WorkloadAbsence sets it.
	Gaps []string
}

const (
	ofSubjects = `
		FROM records(@subjects, n bigint, namespace text, kind text, name text, repository text, id text, package text) k
		NESTED JOIN `
	imagesOfSubjects = ` w ON w.name = k.name AND w.namespace = k.namespace AND w.kind = k.kind AND w.repository = k.repository
		NESTED JOIN scanner_images si ON si.id = w.image_id AND si.scanner = @scanner`

	// selectSubjectImages selects the images of the subjects, with their report by the engine; 0 for none. An image of another engine than the one in
	// use has none.
	subjectImage        = `SELECT k.n, w.reference, w.receivers, si.digest, coalesce(si.manifest_id, 0), coalesce(r.id, 0)`
	withReport          = ` NESTED LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine AND (@engine = '' OR r.engine = @engine)`
	selectSubjectImages = subjectImage + ofSubjects + `workloads` + imagesOfSubjects + withReport + `
		UNION ALL ` + subjectImage + ofSubjects + `left_workloads` + imagesOfSubjects + withReport + ` WHERE ` + isRecentColumn

	// selectSubjectSources selects the announced sources for each image of the subjects, with their report; 0 for none.
	subjectSource = `SELECT k.n, s.source, coalesce(e.report_id, 0)`
	withSource    = ` NESTED JOIN announced_sources s ON s.scanner = si.scanner
		NESTED LEFT JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)`
	selectSubjectSources = subjectSource + ofSubjects + `workloads` + imagesOfSubjects + withSource + `
		UNION ALL ` + subjectSource + ofSubjects + `left_workloads` + imagesOfSubjects + withSource + ` WHERE ` + isRecentColumn

	// selectSubjectFindings selects the reports among some that have the findings of the subjects, or lack them without confirmation: also if they are of
	// the same version of the data as the one with which an earlier image of the workload has lost them.
	selectSubjectFindings = `SELECT DISTINCT k.n, f.report_id, CASE WHEN f.gone_at IS NULL THEN 1 ELSE 0 END, f.type
		FROM records(@subjects, n bigint, namespace text, kind text, name text, repository text, id text, package text) k
		NESTED JOIN vulnerabilities v ON v.canonical_id = k.id
		NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@reports) i)
		WHERE f.package = k.package AND f.fixed_at IS NULL
		UNION
		SELECT k.n, r.id, 0, f.type` + ofSubjects + `left_workloads` + imagesOfSubjects + `
		NESTED JOIN reports earlier ON earlier.manifest_id = si.manifest_id AND earlier.engine = si.engine
		NESTED JOIN vulnerabilities v ON v.canonical_id = k.id
		NESTED JOIN findings f INDEXED BY findings_by_vulnerability ON f.vulnerability_id = v.id AND f.report_id = earlier.id
		NESTED JOIN reports r ON r.id IN (SELECT value FROM ids(@reports) i) AND r.engine = earlier.engine AND r.data_version = f.gone_data_version
		WHERE f.package = k.package AND f.gone_at IS NOT NULL AND f.fixed_at IS NULL`
)

// WorkloadEvidence returns what is known about some findings in workloads, in their order, in one consistent read. engine and route are those of the
// receiver that asks.
func (s *Store) WorkloadEvidence(ctx context.Context, scanner, engine string, route *Route, subjects []WorkloadSubject) (all []WorkloadFacts, err error) {
	if len(subjects) == 0 {
		return nil, nil
	}
	hasAnomaly, err := s.hasAnomaly(ctx, scanner, engine)
	if err != nil {
		return nil, err
	}
	rows := make([][]any, len(subjects))
	for i, of := range subjects {
		rows[i] = []any{i, of.Namespace, of.Kind, of.Name, of.Repository, of.ID, of.Package}
	}
	encoded, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("store: read the evidence about findings: %w", err)
	}
	args := []any{sql.Named("subjects", withoutEscapedNUL(string(encoded))), sql.Named("scanner", scanner), sql.Named("engine", engine)}
	err = s.read(ctx, "read the evidence about findings", func(ctx context.Context, q query) error {
		all = make([]WorkloadFacts, len(subjects))
		for i := range all {
			all[i].DataTrusted = !hasAnomaly
		}
		c := evidenceCollector{subjects: subjects, all: all, route: route, reports: make([]map[int64]string, len(subjects))}
		return c.read(ctx, q, args)
	})
	return all, err
}

// evidenceCollector collects the facts about subjects. reports has the reports about the images of each, with their source, which is empty for the
// engine's.
type evidenceCollector struct {
	subjects []WorkloadSubject
	all      []WorkloadFacts
	route    *Route
	reports  []map[int64]string
}

func (c *evidenceCollector) read(ctx context.Context, q query, args []any) error {
	if err := eachRow(ctx, q, selectSubjectImages, args, c.addImage); err != nil {
		return err
	}
	if err := eachRow(ctx, q, selectSubjectSources, args, c.addSource); err != nil {
		return err
	}
	reports := make(map[int64]bool)
	for _, of := range c.reports {
		for id := range of {
			reports[id] = true
		}
	}
	return eachRow(ctx, q, selectSubjectFindings, append(args, sql.Named("reports", idsOf(reports))), c.addFinding)
}

func (c *evidenceCollector) addImage(rows *sql.Rows) error {
	var n int
	var reference, receivers, digest string
	var manifest, report int64
	if err := rows.Scan(&n, &reference, &receivers, &digest, &manifest, &report); err != nil {
		return err
	}
	of, facts := c.subjects[n], &c.all[n]
	if !c.route.passes(Workload{Namespace: of.Namespace, Receivers: receivers}) {
		return nil
	}
	if c.reports[n] == nil {
		c.reports[n], facts.Runs, facts.Complete = map[int64]string{}, true, true
	}
	name := imageNamed(reference, digest)
	name.Namespace, name.Manifest = of.Namespace, manifest
	facts.Images = append(facts.Images, name)
	if report == 0 {
		facts.Complete = false
		return nil
	}
	c.reports[n][report] = ""
	return nil
}

func (c *evidenceCollector) addSource(rows *sql.Rows) error {
	var n int
	var source string
	var report int64
	if err := rows.Scan(&n, &source, &report); err != nil || c.reports[n] == nil {
		return err
	}
	if report != 0 {
		c.reports[n][report] = source
		return nil
	}
	c.all[n].Silent = insertSorted(c.all[n].Silent, source)
	return nil
}

func (c *evidenceCollector) addFinding(rows *sql.Rows) error {
	var n int
	var report int64
	var present bool
	var kind string
	if err := rows.Scan(&n, &report, &present, &kind); err != nil {
		return err
	}
	source, isOfSubject := c.reports[n][report]
	if !isOfSubject {
		return nil
	}
	facts := &c.all[n]
	facts.Types = insertSorted(facts.Types, kind)
	facts.Present, facts.Unconfirmed = facts.Present || present, facts.Unconfirmed || !present
	if source != "" {
		facts.Sources = insertSorted(facts.Sources, source)
	}
	return nil
}

// insertSorted adds a text to a sorted list unless it is there.
func insertSorted(list []string, text string) []string {
	if i, found := slices.BinarySearch(list, text); !found {
		return slices.Insert(list, i, text)
	}
	return list
}

const (
	ofScannersWorkload = `
		FROM workloads w
		NESTED JOIN scanner_images si ON si.id = w.image_id AND si.namespace = w.namespace`
	isScannersWorkload = `
		WHERE w.name = @name AND w.kind = @kind AND w.namespace = @namespace AND si.scanner = @scanner`

	selectWorkloadSources = `SELECT DISTINCT s.source, coalesce(e.report_id, 0)` + ofScannersWorkload + withSource + isScannersWorkload

	selectWorkloadGaps = `SELECT r.not_covered` + ofScannersWorkload + `
		NESTED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine` + isScannersWorkload

	// selectUnconfirmed selects whether a report of the engine, or of an announced source, lacks a finding that it had, without confirmation.
	selectUnconfirmed = `SELECT EXISTS (SELECT 1` + ofScannersWorkload + `
		NESTED JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
		NESTED JOIN findings f ON f.report_id = r.id` + isScannersWorkload + isUnconfirmed + `)
		OR EXISTS (SELECT 1` + ofScannersWorkload + withSource + `
		NESTED JOIN findings f ON f.report_id = e.report_id` + isScannersWorkload + isUnconfirmed + `)`
	isUnconfirmed = ` AND f.gone_at IS NOT NULL AND f.fixed_at IS NULL`
)

// WorkloadAbsence returns what is known about all findings that a workload's images of a Scanner do not have. Sources are the announced ones with a report
// about one of the images. Complete, SameEngine and SourcesReported are the caller's.
func (s *Store) WorkloadAbsence(ctx context.Context, scanner, namespace, kind, name string) (facts WorkloadFacts, err error) {
	hasAnomaly, err := s.HasAnomaly(ctx, scanner)
	if err != nil {
		return WorkloadFacts{}, err
	}
	args := []any{sql.Named("scanner", scanner), sql.Named("namespace", namespace), sql.Named("kind", kind), sql.Named("name", name)}
	err = s.read(ctx, "read the evidence about a workload", func(ctx context.Context, q query) error {
		facts = WorkloadFacts{Facts: evidence.Facts{DataTrusted: !hasAnomaly}}
		if err := q.QueryRowContext(ctx, selectUnconfirmed, args...).Scan(&facts.Unconfirmed); err != nil {
			return err
		}
		err := eachRow(ctx, q, selectWorkloadGaps, args, func(rows *sql.Rows) error {
			var gaps list[string]
			err := rows.Scan(&gaps)
			for _, gap := range gaps {
				facts.Gaps = insertSorted(facts.Gaps, gap)
			}
			return err
		})
		if err != nil {
			return err
		}
		return eachRow(ctx, q, selectWorkloadSources, args, func(rows *sql.Rows) error {
			var source string
			var report int64
			err := rows.Scan(&source, &report)
			if report != 0 {
				facts.Sources = insertSorted(facts.Sources, source)
			} else {
				facts.Silent = insertSorted(facts.Silent, source)
			}
			return err
		})
	})
	return facts, err
}

// HasAnomaly reports whether the data of an engine that the Scanner has images with has an anomaly.
func (s *Store) HasAnomaly(ctx context.Context, scanner string) (bool, error) {
	return s.hasAnomaly(ctx, scanner, "")
}
