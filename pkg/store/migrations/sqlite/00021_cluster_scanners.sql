-- +goose Up

-- A ClusterScanner has the same image in several namespaces, so the namespace becomes a part of the key. SQLite cannot change a key: the
-- table is made anew, and so are the two that refer to it. Whatever names them is dropped first and made again as it was.
DROP VIEW matchable_images;
DROP TRIGGER matchable_catalog_added;
DROP TRIGGER receiver_records_receiver;
DROP TRIGGER receiver_records_state;
DROP TRIGGER receiver_records_added;

CREATE TABLE scanner_images_new (
    id          INTEGER PRIMARY KEY,
    -- The UID of a Scanner or a ClusterScanner. cluster is 1 for the latter.
    scanner     TEXT    NOT NULL,
    cluster     INTEGER NOT NULL DEFAULT 0,
    namespace   TEXT    NOT NULL,
    digest      TEXT    NOT NULL,
    platform    TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    engine      TEXT    NOT NULL,
    manifest_id INTEGER REFERENCES manifests (id) ON DELETE SET NULL,
    suspended   INTEGER NOT NULL DEFAULT 0,
    -- When the image's workloads were written last: each of them ran it then. NULL in rows from before.
    recorded_at INTEGER,
    UNIQUE (scanner, digest, platform, namespace)
);
INSERT INTO scanner_images_new (id, scanner, namespace, digest, platform, scope, engine, manifest_id, suspended, recorded_at)
SELECT id, scanner, namespace, digest, platform, scope, engine, manifest_id, suspended, recorded_at FROM scanner_images;

CREATE TABLE workloads_new (
    image_id   INTEGER NOT NULL REFERENCES scanner_images_new (id) ON DELETE CASCADE,
    repository TEXT    NOT NULL,
    reference  TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    container  TEXT    NOT NULL,
    -- The receivers that a workload names, sorted and joined by commas; '' if it names none.
    receivers  TEXT    NOT NULL DEFAULT '',
    -- 1 if the workload's pods are meant to end: pods that are gone have ended then.
    completes  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (image_id, repository, reference, namespace, kind, name, container)
) WITHOUT ROWID;
INSERT INTO workloads_new (image_id, repository, reference, namespace, kind, name, container, receivers, completes)
SELECT image_id, repository, reference, namespace, kind, name, container, receivers, completes FROM workloads;

CREATE TABLE left_workloads_new (
    image_id   INTEGER NOT NULL REFERENCES scanner_images_new (id) ON DELETE CASCADE,
    repository TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    container  TEXT    NOT NULL,
    reference  TEXT    NOT NULL DEFAULT '',
    receivers  TEXT    NOT NULL DEFAULT '',
    -- When the workload left the image; NULL in rows from before.
    left_at    INTEGER,
    -- 1 if its pods ended, and not too long ago: then the image counts as in use.
    ended      INTEGER NOT NULL DEFAULT 0,
    -- 1 if it has run another image of the repository since.
    superseded INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (image_id, repository, namespace, kind, name, container)
) WITHOUT ROWID;
INSERT INTO left_workloads_new (image_id, repository, namespace, kind, name, container, reference, receivers, left_at, ended, superseded)
SELECT image_id, repository, namespace, kind, name, container, reference, receivers, left_at, ended, superseded FROM left_workloads;

DROP TABLE workloads;
DROP TABLE left_workloads;
DROP TABLE scanner_images;
ALTER TABLE scanner_images_new RENAME TO scanner_images;
ALTER TABLE workloads_new RENAME TO workloads;
ALTER TABLE left_workloads_new RENAME TO left_workloads;

CREATE INDEX scanner_images_by_digest ON scanner_images (digest, scope);
CREATE INDEX scanner_images_by_manifest ON scanner_images (manifest_id, engine);
CREATE INDEX scanner_images_by_engine ON scanner_images (engine, suspended, manifest_id);
CREATE INDEX scanner_images_by_namespace ON scanner_images (namespace);
-- The namespace of a Scanner is looked up for each record of its receivers. A ClusterScanner has no entry here.
CREATE INDEX scanner_images_namespaced ON scanner_images (scanner, namespace) WHERE cluster = 0;
CREATE INDEX workloads_by_name ON workloads (name, namespace, kind, container, repository);
CREATE INDEX left_workloads_by_name ON left_workloads (name, namespace, kind, container, repository);

CREATE VIEW matchable_images AS
SELECT si.engine, si.namespace, si.manifest_id,
    CASE WHEN r.id IS NULL THEN '' ELSE '=' || r.data_version END AS made_with,
    coalesce(r.matched_at, 0) AS matched_at,
    f.retry_at, f.failed_at
FROM scanner_images si
JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = si.engine
LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
LEFT JOIN data_versions d ON d.engine = si.engine
LEFT JOIN match_failures f ON f.manifest_id = si.manifest_id AND f.engine = si.engine
    AND f.data_version = coalesce(d.version, '') AND f.retry_at IS NOT NULL
WHERE si.suspended = 0;

-- +goose StatementBegin
CREATE TRIGGER matchable_use_added AFTER INSERT ON scanner_images WHEN new.manifest_id IS NOT NULL BEGIN
    INSERT INTO matchable (engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at)
    SELECT engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at FROM matchable_images
    WHERE manifest_id = new.manifest_id AND engine = new.engine AND namespace = new.namespace
    ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_use_changed AFTER UPDATE OF engine, namespace, manifest_id, suspended ON scanner_images
WHEN old.engine <> new.engine OR old.namespace <> new.namespace OR old.manifest_id IS NOT new.manifest_id OR old.suspended <> new.suspended BEGIN
    DELETE FROM matchable WHERE manifest_id = old.manifest_id AND engine = old.engine AND namespace = old.namespace
    AND NOT EXISTS (SELECT 1 FROM scanner_images si
        WHERE si.manifest_id = old.manifest_id AND si.engine = old.engine AND si.namespace = old.namespace AND si.suspended = 0);
    INSERT INTO matchable (engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at)
    SELECT engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at FROM matchable_images
    WHERE manifest_id = new.manifest_id AND engine = new.engine AND namespace = new.namespace
    ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_use_removed AFTER DELETE ON scanner_images WHEN old.manifest_id IS NOT NULL BEGIN
    DELETE FROM matchable WHERE manifest_id = old.manifest_id AND engine = old.engine AND namespace = old.namespace
    AND NOT EXISTS (SELECT 1 FROM scanner_images si
        WHERE si.manifest_id = old.manifest_id AND si.engine = old.engine AND si.namespace = old.namespace AND si.suspended = 0);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_catalog_added AFTER INSERT ON catalogues BEGIN
    INSERT INTO matchable (engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at)
    SELECT engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at FROM matchable_images
    WHERE manifest_id = new.manifest_id AND engine = new.engine
    ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd

-- The namespace in whose budget the records of a receiver count stays '' for a receiver of a ClusterScanner: an administrator's records are
-- in no namespace's budget.
-- +goose StatementBegin
CREATE TRIGGER receiver_records_receiver AFTER INSERT ON receivers BEGIN
    INSERT INTO receiver_records (receiver_id, namespace)
    VALUES (new.id, coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner AND si.cluster = 0 LIMIT 1), ''));
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receiver_records_state AFTER UPDATE OF state ON receivers BEGIN
    UPDATE receiver_records
    SET namespace = coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner AND si.cluster = 0 LIMIT 1), '')
    WHERE receiver_id = new.id AND namespace = '';
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receiver_records_added AFTER INSERT ON announcements BEGIN
    UPDATE receiver_records SET bytes = bytes + 100 + octet_length(new.repository) + octet_length(new.canonical_id) + octet_length(new.package),
        namespace = CASE namespace WHEN '' THEN coalesce((SELECT si.namespace FROM receivers r JOIN scanner_images si ON si.scanner = r.scanner
            WHERE r.id = new.receiver_id AND si.cluster = 0 LIMIT 1), '') ELSE namespace END
    WHERE receiver_id = new.receiver_id;
END;
-- +goose StatementEnd

-- Since when the last image with an announced finding is not a ClusterScanner's any more, because the image's namespace left its coverage. Such a
-- finding is not fixed until that namespace is back without it. NULL while it is present, and in all other cases.
ALTER TABLE announcements ADD COLUMN released_at INTEGER;
ALTER TABLE announcements ADD COLUMN released_from TEXT NOT NULL DEFAULT '';
CREATE INDEX announcements_released ON announcements (receiver_id, repository, released_at) WHERE released_at IS NOT NULL;
