-- +goose NO TRANSACTION
-- +goose Up

-- See migration 37 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_rescans;
-- +goose StatementBegin
CREATE PROCEDURE add_rescans()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'scanner_images' AND column_name = 'rescan_requested_at') THEN
        ALTER TABLE scanner_images ADD COLUMN rescan_requested_at BIGINT;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'catalogues' AND column_name = 'rescanned_at') THEN
        ALTER TABLE catalogues ADD COLUMN rescanned_at BIGINT;
    END IF;
END;
-- +goose StatementEnd
CALL add_rescans();
DROP PROCEDURE add_rescans;
