-- +goose Up

-- Sessions of the web UI that were signed out and have not expired: the SHA-256 of what their cookies encode, in hexadecimal, that of the user's
-- tenant, and when they were signed out. No replica accepts a copy of their cookies.
CREATE TABLE ended_sessions (
    hash       TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    ended_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
