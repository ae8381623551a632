-- +goose Up

-- epoch is the number of the leader's term: each replica of the manager that begins to lead raises it. oldest_schema is the oldest schema whose
-- program can work with this database: a migration that only adds leaves it, and one that removes or changes something raises it.
ALTER TABLE store_revision ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store_revision ADD COLUMN oldest_schema INTEGER NOT NULL DEFAULT 28;

-- What other replicas have seen and the leader has to know. The leader deletes a notice when it has read it.
CREATE TABLE notices (
    kind           TEXT    NOT NULL,
    subject        TEXT    NOT NULL,
    content        TEXT    NOT NULL,
    store_revision INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
) WITHOUT ROWID;
