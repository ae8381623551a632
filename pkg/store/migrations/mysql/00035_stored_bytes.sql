-- +goose NO TRANSACTION
-- +goose Up

-- See migration 35 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_stored_bytes;
-- +goose StatementBegin
CREATE PROCEDURE add_stored_bytes()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'reports' AND column_name = 'kept_bytes') THEN
        ALTER TABLE reports ADD COLUMN kept_bytes BIGINT NOT NULL DEFAULT 0;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'vulnerabilities' AND column_name = 'bytes') THEN
        ALTER TABLE vulnerabilities ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0, ADD KEY vulnerabilities_by_engine (engine, bytes);
    END IF;
END;
-- +goose StatementEnd
CALL add_stored_bytes();
DROP PROCEDURE add_stored_bytes;
UPDATE reports SET kept_bytes = 320 * (SELECT count(*) FROM findings f WHERE f.report_id = reports.id AND f.gone_at IS NOT NULL);
UPDATE vulnerabilities SET bytes = 200 + octet_length(description) + octet_length(url) WHERE engine LIKE 'external:%';
