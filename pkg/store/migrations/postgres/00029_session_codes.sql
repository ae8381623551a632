-- +goose Up

-- See migration 29 of SQLite.
CREATE TABLE session_codes (
    hash       text   COLLATE "C" PRIMARY KEY,
    owner      text   COLLATE "C" NOT NULL,
    sealed     text   COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);
