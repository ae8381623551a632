-- +goose Up

-- See migration 31 of SQLite.
ALTER TABLE catalogues ADD COLUMN sbom_policy text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_signer text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_problem text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN sbom_policy text COLLATE "C" NOT NULL DEFAULT '';
