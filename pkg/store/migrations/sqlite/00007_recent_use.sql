-- +goose Up

-- 1 if the workload's pods are meant to end: pods that are gone have ended then.
ALTER TABLE workloads ADD COLUMN completes INTEGER NOT NULL DEFAULT 0;
UPDATE workloads SET completes = 1 WHERE kind IN ('Job', 'CronJob');

-- left_workloads are the workloads that ran an image and run it no longer: all that ran it last while nothing runs it, else those that
-- have ended. From here on each has the time at which it left; NULL in rows from before.
ALTER TABLE left_workloads ADD COLUMN reference TEXT NOT NULL DEFAULT '';
ALTER TABLE left_workloads ADD COLUMN receivers TEXT NOT NULL DEFAULT '';
ALTER TABLE left_workloads ADD COLUMN left_at INTEGER;
-- 1 if its pods ended, and not too long ago: then the image counts as in use.
ALTER TABLE left_workloads ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
-- 1 if it has run another image of the repository since.
ALTER TABLE left_workloads ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;

CREATE INDEX workloads_by_name ON workloads (name, namespace, kind, container, repository);
CREATE INDEX left_workloads_by_name ON left_workloads (name, namespace, kind, container, repository);

UPDATE left_workloads SET superseded = 1 WHERE EXISTS (
    SELECT 1 FROM workloads w
    JOIN scanner_images running ON running.id = w.image_id
    JOIN scanner_images own ON own.id = left_workloads.image_id
    WHERE w.name = left_workloads.name AND w.namespace = left_workloads.namespace AND w.kind = left_workloads.kind
        AND w.container = left_workloads.container AND w.repository = left_workloads.repository
        AND running.scanner = own.scanner AND running.digest <> own.digest);
