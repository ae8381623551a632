-- +goose Up

-- OpenVEX documents that are attached to an image, as they were read last by the signers of a policy.
CREATE TABLE image_statements (
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    policy      TEXT    NOT NULL,
    -- A list of statements in JSON, their number, and the hash and the size of the list.
    statements  TEXT    NOT NULL,
    amount      INTEGER NOT NULL,
    hash        TEXT    NOT NULL,
    bytes       INTEGER NOT NULL,
    -- Why documents or statements do not count; '' if all do.
    problem     TEXT    NOT NULL,
    PRIMARY KEY (manifest_id, policy)
);
-- The policy by which a catalog Job may bring OpenVEX documents; '' for none.
ALTER TABLE jobs ADD COLUMN vex_policy TEXT NOT NULL DEFAULT '';
