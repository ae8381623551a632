-- +goose Up

-- The policy by which an attested SBOM was accepted instead of a catalog of the image's content, and who signed it; '' for content. Beside
-- content, why no attested SBOM was accepted, if one was preferred.
ALTER TABLE catalogues ADD COLUMN sbom_policy TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_signer TEXT NOT NULL DEFAULT '';
ALTER TABLE catalogues ADD COLUMN sbom_problem TEXT NOT NULL DEFAULT '';
-- The policy that a catalog Job was given; '' if it may only catalog content.
ALTER TABLE jobs ADD COLUMN sbom_policy TEXT NOT NULL DEFAULT '';
