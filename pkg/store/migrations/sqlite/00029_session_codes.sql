-- +goose Up

-- Codes that sign a browser in once, on any replica: the SHA-256 of the code and of the user's name in hexadecimal, and the user's token, sealed
-- with a key that only the code gives. A code lives for a minute.
CREATE TABLE session_codes (
    hash       TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    sealed     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
