-- +goose Up

-- The namespace in whose budget a manifest's SBOM and findings count: the one on whose behalf the manifest was cataloged. '' is nobody's.
ALTER TABLE manifests ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
UPDATE manifests SET namespace = CASE scope WHEN '' THEN
    coalesce((SELECT si.namespace FROM scanner_images si WHERE si.manifest_id = manifests.id ORDER BY si.id LIMIT 1), '')
    ELSE scope END;
CREATE INDEX manifests_by_namespace ON manifests (namespace);

-- The digest of the upload that was taken as a Job's result; '' while there is none.
ALTER TABLE jobs ADD COLUMN result TEXT NOT NULL DEFAULT '';
