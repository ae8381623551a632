-- +goose Up

-- The store's revision: each writing transaction raises it, so it orders what was committed. One row, whose lock also lets writers wait for
-- each other.
CREATE TABLE store_revision (
    id       bigint PRIMARY KEY CHECK (id = 1),
    revision bigint NOT NULL
);
INSERT INTO store_revision (id, revision) VALUES (1, 0);

-- The revision with which each row was written last.
ALTER TABLE reports ADD COLUMN store_revision bigint NOT NULL DEFAULT 0;
ALTER TABLE scanner_images ADD COLUMN store_revision bigint NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN store_revision bigint NOT NULL DEFAULT 0;
