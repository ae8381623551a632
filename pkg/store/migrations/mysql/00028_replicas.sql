-- +goose NO TRANSACTION
-- +goose Up

-- See migration 28 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_epoch;
-- +goose StatementBegin
CREATE PROCEDURE add_epoch()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'store_revision' AND column_name = 'epoch') THEN
        ALTER TABLE store_revision ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0, ADD COLUMN oldest_schema BIGINT NOT NULL DEFAULT 28;
    END IF;
END;
-- +goose StatementEnd
CALL add_epoch();
DROP PROCEDURE add_epoch;

CREATE TABLE IF NOT EXISTS notices (
    kind           VARBINARY(64)  NOT NULL,
    subject        VARBINARY(255) NOT NULL,
    content        MEDIUMBLOB     NOT NULL,
    store_revision BIGINT         NOT NULL,
    PRIMARY KEY (kind, subject)
) ENGINE = InnoDB;
