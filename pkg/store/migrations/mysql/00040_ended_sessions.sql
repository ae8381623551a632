-- +goose NO TRANSACTION
-- +goose Up

-- See migration 40 of SQLite.
CREATE TABLE IF NOT EXISTS ended_sessions (
    hash       VARBINARY(64) PRIMARY KEY,
    tenant     VARBINARY(64) NOT NULL,
    ended_at   BIGINT        NOT NULL,
    expires_at BIGINT        NOT NULL
) ENGINE = InnoDB;
