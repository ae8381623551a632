-- +goose Up

-- See migration 32 of SQLite.
CREATE TABLE image_statements (
    manifest_id bigint NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    policy      text   COLLATE "C" NOT NULL,
    statements  text   COLLATE "C" NOT NULL,
    amount      bigint NOT NULL,
    hash        text   COLLATE "C" NOT NULL,
    bytes       bigint NOT NULL,
    problem     text   COLLATE "C" NOT NULL,
    PRIMARY KEY (manifest_id, policy)
);
ALTER TABLE jobs ADD COLUMN vex_policy text COLLATE "C" NOT NULL DEFAULT '';
