-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS uploaded_sboms (
    manifest_id     BIGINT         PRIMARY KEY,
    namespace       VARBINARY(255) NOT NULL,
    digest          VARBINARY(255) NOT NULL,
    platform        VARBINARY(255) NOT NULL,
    platform_digest VARBINARY(255) NOT NULL,
    policy          VARBINARY(255) NOT NULL,
    saved_at        BIGINT         NOT NULL,
    saved_by        MEDIUMBLOB     NOT NULL,
    UNIQUE KEY uploaded_sboms_by_key (namespace, digest, platform),
    KEY uploaded_sboms_by_policy (policy),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

-- MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_uploaded_sboms;
-- +goose StatementBegin
CREATE PROCEDURE add_uploaded_sboms()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'catalogues' AND column_name = 'sbom_uploader') THEN
        ALTER TABLE catalogues ADD COLUMN sbom_uploader MEDIUMBLOB NOT NULL DEFAULT (''), ADD COLUMN sbom_uploaded_at BIGINT;
    END IF;
END;
-- +goose StatementEnd
CALL add_uploaded_sboms();
DROP PROCEDURE add_uploaded_sboms;
