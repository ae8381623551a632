-- +goose Up

-- What else counts in the budget of a namespace: the findings of a report that are gone, and what other tools state about vulnerabilities, each under an
-- engine of its own. Rows from before have an estimate until they are written again.
ALTER TABLE reports ADD COLUMN kept_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE reports SET kept_bytes = 320 * (SELECT count(*) FROM findings f WHERE f.report_id = reports.id AND f.gone_at IS NOT NULL);
ALTER TABLE vulnerabilities ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE vulnerabilities SET bytes = 200 + octet_length(description) + octet_length(url) WHERE engine LIKE 'external:%';
CREATE INDEX vulnerabilities_by_engine ON vulnerabilities (engine, bytes);
