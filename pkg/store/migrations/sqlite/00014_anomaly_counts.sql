-- +goose Up

-- How many findings the reports of an engine have in a scope, and how many went with each version of its data on each day (UTC) and
-- are not back. SaveReport keeps both, so that whether the data is anomalous is known without reading reports.
CREATE TABLE present_counts (
    engine  TEXT    NOT NULL,
    scope   TEXT    NOT NULL,
    present INTEGER NOT NULL,
    PRIMARY KEY (engine, scope)
) WITHOUT ROWID;
CREATE TABLE loss_counts (
    engine       TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    data_version TEXT    NOT NULL,
    -- Days since 1970.
    day          INTEGER NOT NULL,
    missing      INTEGER NOT NULL,
    -- When the first of them went.
    since        INTEGER NOT NULL,
    PRIMARY KEY (engine, scope, data_version, day)
) WITHOUT ROWID;

INSERT INTO present_counts (engine, scope, present)
SELECT r.engine, m.scope, sum(r.present) FROM reports r JOIN manifests m ON m.id = r.manifest_id GROUP BY r.engine, m.scope;

INSERT INTO loss_counts (engine, scope, data_version, day, missing, since)
SELECT r.engine, m.scope, f.gone_data_version, f.gone_at / 86400000, count(*), min(f.gone_at)
FROM findings f JOIN reports r ON r.id = f.report_id JOIN manifests m ON m.id = r.manifest_id
WHERE f.gone_at IS NOT NULL AND f.gone_data_version <> ''
GROUP BY r.engine, m.scope, f.gone_data_version, f.gone_at / 86400000;
