-- +goose Up

-- See migration 28 of SQLite.
ALTER TABLE store_revision ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE store_revision ADD COLUMN oldest_schema bigint NOT NULL DEFAULT 28;

CREATE TABLE notices (
    kind           text COLLATE "C" NOT NULL,
    subject        text COLLATE "C" NOT NULL,
    content        text COLLATE "C" NOT NULL,
    store_revision bigint           NOT NULL,
    PRIMARY KEY (kind, subject)
);
