-- +goose NO TRANSACTION
-- +goose Up

-- See migration 36 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_announcement_sources;
-- +goose StatementBegin
CREATE PROCEDURE add_announcement_sources()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'announcements' AND column_name = 'sources') THEN
        ALTER TABLE announcements ADD COLUMN sources MEDIUMBLOB;
    END IF;
END;
-- +goose StatementEnd
CALL add_announcement_sources();
DROP PROCEDURE add_announcement_sources;
