-- +goose NO TRANSACTION
-- +goose Up

-- See migration 23 of SQLite. Every statement can run again, so an interrupted migration is repeated.
CREATE TABLE IF NOT EXISTS running_manifests (
    manifest_id BIGINT         NOT NULL,
    engine      VARBINARY(255) NOT NULL,
    namespace   VARBINARY(255) NOT NULL,
    PRIMARY KEY (manifest_id, engine, namespace),
    KEY running_manifests_by_namespace (namespace, engine, manifest_id),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS namespace_vulnerabilities (
    namespace        VARBINARY(255) NOT NULL,
    vulnerability_id BIGINT         NOT NULL,
    images           BIGINT         NOT NULL,
    critical         BIGINT         NOT NULL,
    high             BIGINT         NOT NULL,
    medium           BIGINT         NOT NULL,
    low              BIGINT         NOT NULL,
    negligible       BIGINT         NOT NULL,
    fixable          BIGINT         NOT NULL,
    PRIMARY KEY (namespace, vulnerability_id),
    KEY namespace_vulnerabilities_by_vulnerability (vulnerability_id, namespace)
) ENGINE = InnoDB;

DELETE FROM running_manifests;
INSERT INTO running_manifests (manifest_id, engine, namespace)
SELECT DISTINCT si.manifest_id, si.engine, si.namespace FROM scanner_images si
WHERE si.manifest_id IS NOT NULL AND EXISTS (SELECT 1 FROM workloads w WHERE w.image_id = si.id AND w.namespace = si.namespace);

DELETE FROM namespace_vulnerabilities;
INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT u.namespace, p.vulnerability_id, count(*), sum(p.severity = 5), sum(p.severity = 4), sum(p.severity = 3), sum(p.severity = 2), sum(p.severity = 1), sum(p.fixable)
FROM (SELECT report_id, vulnerability_id, max(severity) AS severity, max(fixable) AS fixable FROM findings WHERE gone_at IS NULL
    GROUP BY report_id, vulnerability_id) p
JOIN reports r ON r.id = p.report_id
JOIN running_manifests u ON u.manifest_id = r.manifest_id AND u.engine = r.engine
GROUP BY u.namespace, p.vulnerability_id;

INSERT INTO namespace_vulnerabilities (namespace, vulnerability_id, images, critical, high, medium, low, negligible, fixable)
SELECT '', s.vulnerability_id, s.images, s.critical, s.high, s.medium, s.low, s.negligible, s.fixable
FROM (SELECT vulnerability_id, sum(images) AS images, sum(critical) AS critical, sum(high) AS high, sum(medium) AS medium, sum(low) AS low,
        sum(negligible) AS negligible, sum(fixable) AS fixable
    FROM namespace_vulnerabilities GROUP BY vulnerability_id) s;

-- MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_summary_columns;
-- +goose StatementBegin
CREATE PROCEDURE add_summary_columns()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'vulnerabilities' AND column_name = 'first_seen') THEN
        ALTER TABLE vulnerabilities ADD COLUMN first_seen BIGINT NOT NULL DEFAULT 0;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'reports' AND column_name = 'urgency') THEN
        ALTER TABLE reports ADD COLUMN urgency BIGINT NOT NULL DEFAULT 0;
    END IF;
END;
-- +goose StatementEnd
CALL add_summary_columns();
DROP PROCEDURE add_summary_columns;

UPDATE vulnerabilities v JOIN (SELECT vulnerability_id, min(first_seen) AS first_seen FROM findings GROUP BY vulnerability_id) f ON f.vulnerability_id = v.id
SET v.first_seen = f.first_seen;

UPDATE reports r JOIN (
    SELECT report_id, sum(known_exploited) * 1099511627776 + sum(severity = 5) * 1048576 + sum(severity = 4) AS urgency
    FROM findings WHERE gone_at IS NULL AND fixable = 1 GROUP BY report_id) f ON f.report_id = r.id
SET r.urgency = f.urgency;
