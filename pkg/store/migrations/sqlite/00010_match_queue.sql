-- +goose Up

-- The namespace in whose turn an image was leased.
ALTER TABLE leases ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
CREATE INDEX leases_by_engine ON leases (engine, until);

-- What matchable holds, read from the tables that decide it: each namespace with each image that a Scanner of it, not suspended, has
-- with an engine which has cataloged the image.
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

-- The match queue in the order in which it is leased. Triggers keep it, so that no writer of the tables behind it can forget to.
CREATE TABLE matchable (
    id          INTEGER PRIMARY KEY,
    engine      TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    -- '=' and the data version of the report; '' if there is no report. An image is due while this is not the engine's current one.
    made_with   TEXT    NOT NULL,
    matched_at  INTEGER NOT NULL,
    -- Of the failure with the current data; NULL if there is none, or its time has come.
    retry_at    INTEGER,
    failed_at   INTEGER,
    UNIQUE (manifest_id, engine, namespace)
);
INSERT INTO matchable (engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at)
SELECT DISTINCT engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at FROM matchable_images;
CREATE INDEX matchable_by_namespace ON matchable (engine, namespace, made_with, matched_at, manifest_id) WHERE retry_at IS NULL;
CREATE INDEX matchable_by_data ON matchable (engine, made_with, namespace, manifest_id) WHERE retry_at IS NULL;
CREATE INDEX matchable_by_retry ON matchable (engine, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX matchable_by_failure ON matchable (engine, failed_at) WHERE retry_at IS NOT NULL;

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

-- +goose StatementBegin
CREATE TRIGGER matchable_catalog_removed AFTER DELETE ON catalogues BEGIN
    DELETE FROM matchable WHERE manifest_id = old.manifest_id AND engine = old.engine;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_report_added AFTER INSERT ON reports BEGIN
    UPDATE matchable SET made_with = '=' || new.data_version, matched_at = new.matched_at
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_report_changed AFTER UPDATE OF data_version, matched_at ON reports BEGIN
    UPDATE matchable SET made_with = '=' || new.data_version, matched_at = new.matched_at
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_report_removed AFTER DELETE ON reports BEGIN
    UPDATE matchable SET made_with = '', matched_at = 0 WHERE manifest_id = old.manifest_id AND engine = old.engine;
END;
-- +goose StatementEnd

-- A failure of other data than the current puts nothing off.
-- +goose StatementBegin
CREATE TRIGGER matchable_failure_added AFTER INSERT ON match_failures BEGIN
    UPDATE matchable SET failed_at = new.failed_at, retry_at = CASE
        WHEN new.data_version = coalesce((SELECT version FROM data_versions WHERE engine = new.engine), '') THEN new.retry_at END
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_failure_removed AFTER DELETE ON match_failures BEGIN
    UPDATE matchable SET retry_at = NULL WHERE manifest_id = old.manifest_id AND engine = old.engine AND retry_at IS NOT NULL;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_data_changed AFTER UPDATE OF version ON data_versions WHEN old.version <> new.version BEGIN
    UPDATE matchable SET (retry_at, failed_at) = (SELECT f.retry_at, f.failed_at FROM match_failures f
        WHERE f.manifest_id = matchable.manifest_id AND f.engine = new.engine AND f.data_version = new.version)
    WHERE engine = new.engine AND manifest_id IN (SELECT manifest_id FROM match_failures WHERE engine = new.engine);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER matchable_data_added AFTER INSERT ON data_versions BEGIN
    UPDATE matchable SET (retry_at, failed_at) = (SELECT f.retry_at, f.failed_at FROM match_failures f
        WHERE f.manifest_id = matchable.manifest_id AND f.engine = new.engine AND f.data_version = new.version)
    WHERE engine = new.engine AND manifest_id IN (SELECT manifest_id FROM match_failures WHERE engine = new.engine);
END;
-- +goose StatementEnd
