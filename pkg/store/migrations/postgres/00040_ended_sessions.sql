-- +goose Up

-- See migration 40 of SQLite.
CREATE TABLE ended_sessions (
    hash       text   COLLATE "C" PRIMARY KEY,
    tenant     text   COLLATE "C" NOT NULL,
    ended_at   bigint NOT NULL,
    expires_at bigint NOT NULL
);
