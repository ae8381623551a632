-- +goose NO TRANSACTION
-- +goose Up

-- See migration 25 of SQLite.
CREATE TABLE IF NOT EXISTS namespace_changes (
    namespace      VARBINARY(255) NOT NULL PRIMARY KEY,
    store_revision BIGINT         NOT NULL
) ENGINE = InnoDB;
