-- +goose NO TRANSACTION
-- +goose Up

-- See migration 29 of SQLite.
CREATE TABLE IF NOT EXISTS session_codes (
    hash       VARBINARY(64) PRIMARY KEY,
    owner      VARBINARY(64) NOT NULL,
    sealed     MEDIUMBLOB    NOT NULL,
    expires_at BIGINT        NOT NULL
) ENGINE = InnoDB;
