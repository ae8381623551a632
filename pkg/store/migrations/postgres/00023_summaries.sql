-- +goose Up

-- See migration 23 of SQLite.
CREATE TABLE running_manifests (
    manifest_id bigint NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine      text   COLLATE "C" NOT NULL,
    namespace   text   COLLATE "C" NOT NULL,
    PRIMARY KEY (manifest_id, engine, namespace)
);
CREATE INDEX running_manifests_by_namespace ON running_manifests (namespace, engine, manifest_id);

-- No index has the counts, so an update of them in a page with room changes no index.
CREATE TABLE namespace_vulnerabilities (
    namespace        text   COLLATE "C" NOT NULL,
    vulnerability_id bigint NOT NULL,
    images           bigint NOT NULL,
    critical         bigint NOT NULL,
    high             bigint NOT NULL,
    medium           bigint NOT NULL,
    low              bigint NOT NULL,
    negligible       bigint NOT NULL,
    fixable          bigint NOT NULL,
    PRIMARY KEY (namespace, vulnerability_id)
) WITH (fillfactor = 70);
CREATE INDEX namespace_vulnerabilities_by_vulnerability ON namespace_vulnerabilities (vulnerability_id, namespace);

INSERT INTO running_manifests (manifest_id, engine, namespace)
SELECT DISTINCT si.manifest_id, si.engine, si.namespace FROM scanner_images si
WHERE si.manifest_id IS NOT NULL AND EXISTS (SELECT 1 FROM workloads w WHERE w.image_id = si.id AND w.namespace = si.namespace);

INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT u.namespace, p.vulnerability_id, count(*), count(*) FILTER (WHERE p.severity = 5), count(*) FILTER (WHERE p.severity = 4),
    count(*) FILTER (WHERE p.severity = 3), count(*) FILTER (WHERE p.severity = 2), count(*) FILTER (WHERE p.severity = 1), sum(p.fixable)
FROM (SELECT report_id, vulnerability_id, max(severity) AS severity, max(fixable) AS fixable FROM findings WHERE gone_at IS NULL
    GROUP BY report_id, vulnerability_id) p
JOIN reports r ON r.id = p.report_id
JOIN running_manifests u ON u.manifest_id = r.manifest_id AND u.engine = r.engine
GROUP BY u.namespace, p.vulnerability_id;

INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT '', vulnerability_id, sum(images), sum(critical), sum(high), sum(medium), sum(low), sum(negligible), sum(fixable)
FROM namespace_vulnerabilities GROUP BY vulnerability_id;

ALTER TABLE vulnerabilities ADD COLUMN first_seen bigint NOT NULL DEFAULT 0;
UPDATE vulnerabilities SET first_seen = f.first_seen
FROM (SELECT vulnerability_id, min(first_seen) AS first_seen FROM findings GROUP BY vulnerability_id) f WHERE f.vulnerability_id = vulnerabilities.id;

ALTER TABLE reports ADD COLUMN urgency bigint NOT NULL DEFAULT 0;
UPDATE reports SET urgency = f.urgency
FROM (SELECT report_id, (sum(known_exploited) * 1099511627776 + count(*) FILTER (WHERE severity = 5) * 1048576 + count(*) FILTER (WHERE severity = 4))::bigint AS urgency
    FROM findings WHERE gone_at IS NULL AND fixable = 1 GROUP BY report_id) f WHERE f.report_id = reports.id;
