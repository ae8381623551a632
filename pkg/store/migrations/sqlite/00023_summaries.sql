-- +goose Up

-- Which manifests run in which namespaces, by the engine that scans them there: a Scanner or a ClusterScanner has the image, and a workload
-- of the namespace runs it now.
CREATE TABLE running_manifests (
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine      TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    PRIMARY KEY (manifest_id, engine, namespace)
) WITHOUT ROWID;
CREATE INDEX running_manifests_by_namespace ON running_manifests (namespace, engine, manifest_id);

-- How many running manifests of a namespace have a vulnerability: images is all of them, the other columns are those in which its worst
-- finding has a severity, and those in which a finding of it is fixable. The namespace '' has the sums of all namespaces. Rows with zeros
-- stay until the next sweep.
CREATE TABLE namespace_vulnerabilities (
    namespace        TEXT    NOT NULL,
    vulnerability_id INTEGER NOT NULL,
    images           INTEGER NOT NULL,
    critical         INTEGER NOT NULL,
    high             INTEGER NOT NULL,
    medium           INTEGER NOT NULL,
    low              INTEGER NOT NULL,
    negligible       INTEGER NOT NULL,
    fixable          INTEGER NOT NULL,
    PRIMARY KEY (namespace, vulnerability_id)
) WITHOUT ROWID;
CREATE INDEX namespace_vulnerabilities_by_vulnerability ON namespace_vulnerabilities (vulnerability_id, namespace);

INSERT INTO running_manifests (manifest_id, engine, namespace)
SELECT DISTINCT si.manifest_id, si.engine, si.namespace FROM scanner_images si
WHERE si.manifest_id IS NOT NULL AND EXISTS (SELECT 1 FROM workloads w WHERE w.image_id = si.id AND w.namespace = si.namespace);

INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT u.namespace, p.vulnerability_id, count(*), sum(p.severity = 5), sum(p.severity = 4), sum(p.severity = 3), sum(p.severity = 2), sum(p.severity = 1), sum(p.fixable)
FROM (SELECT report_id, vulnerability_id, max(severity) AS severity, max(fixable) AS fixable FROM findings WHERE gone_at IS NULL
    GROUP BY report_id, vulnerability_id) p
JOIN reports r ON r.id = p.report_id
JOIN running_manifests u ON u.manifest_id = r.manifest_id AND u.engine = r.engine
GROUP BY u.namespace, p.vulnerability_id;

INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT '', vulnerability_id, sum(images), sum(critical), sum(high), sum(medium), sum(low), sum(negligible), sum(fixable)
FROM namespace_vulnerabilities GROUP BY vulnerability_id;

-- When the store first recorded the vulnerability.
ALTER TABLE vulnerabilities ADD COLUMN first_seen INTEGER NOT NULL DEFAULT 0;
UPDATE vulnerabilities SET first_seen = coalesce((SELECT min(f.first_seen) FROM findings f WHERE f.vulnerability_id = vulnerabilities.id), 0);

-- How urgent the present findings of a report are that an update ends: the number of known exploited ones times 2^40, of critical ones times
-- 2^20, and of high ones.
ALTER TABLE reports ADD COLUMN urgency INTEGER NOT NULL DEFAULT 0;
UPDATE reports SET urgency = coalesce((
    SELECT sum(f.known_exploited) * 1099511627776 + sum(f.severity = 5) * 1048576 + sum(f.severity = 4) FROM findings f
    WHERE f.report_id = reports.id AND f.gone_at IS NULL AND f.fixable = 1), 0);
