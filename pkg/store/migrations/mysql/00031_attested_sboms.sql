-- +goose NO TRANSACTION
-- +goose Up

-- See migration 31 of SQLite. MySQL cannot add a column only if it is missing.
DROP PROCEDURE IF EXISTS add_attested_sboms;
-- +goose StatementBegin
CREATE PROCEDURE add_attested_sboms()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'catalogues' AND column_name = 'sbom_policy') THEN
        ALTER TABLE catalogues ADD COLUMN sbom_policy VARBINARY(255) NOT NULL DEFAULT '', ADD COLUMN sbom_signer MEDIUMBLOB NOT NULL DEFAULT (''),
            ADD COLUMN sbom_problem MEDIUMBLOB NOT NULL DEFAULT ('');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'jobs' AND column_name = 'sbom_policy') THEN
        ALTER TABLE jobs ADD COLUMN sbom_policy VARBINARY(255) NOT NULL DEFAULT '';
    END IF;
END;
-- +goose StatementEnd
CALL add_attested_sboms();
DROP PROCEDURE add_attested_sboms;
