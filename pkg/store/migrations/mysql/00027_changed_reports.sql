-- +goose NO TRANSACTION
-- +goose Up

-- See migration 27 of SQLite. MySQL cannot add an index only if it is missing.
DROP PROCEDURE IF EXISTS add_reports_by_revision;
-- +goose StatementBegin
CREATE PROCEDURE add_reports_by_revision()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = database() AND table_name = 'reports' AND index_name = 'reports_by_revision') THEN
        CREATE INDEX reports_by_revision ON reports (store_revision);
    END IF;
END;
-- +goose StatementEnd
CALL add_reports_by_revision();
DROP PROCEDURE add_reports_by_revision;
