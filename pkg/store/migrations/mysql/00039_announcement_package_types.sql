-- +goose NO TRANSACTION
-- +goose Up

-- See migration 39 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_announcement_package_types;
-- +goose StatementBegin
CREATE PROCEDURE add_announcement_package_types()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'announcements' AND column_name = 'package_types') THEN
        ALTER TABLE announcements ADD COLUMN package_types MEDIUMBLOB;
    END IF;
END;
-- +goose StatementEnd
CALL add_announcement_package_types();
DROP PROCEDURE add_announcement_package_types;
