-- +goose Up

-- See migration 35 of SQLite.
ALTER TABLE reports ADD COLUMN kept_bytes bigint NOT NULL DEFAULT 0;
UPDATE reports SET kept_bytes = 320 * (SELECT count(*) FROM findings f WHERE f.report_id = reports.id AND f.gone_at IS NOT NULL);
ALTER TABLE vulnerabilities ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE vulnerabilities SET bytes = 200 + octet_length(description) + octet_length(url) WHERE engine LIKE 'external:%';
CREATE INDEX vulnerabilities_by_engine ON vulnerabilities (engine, bytes);
