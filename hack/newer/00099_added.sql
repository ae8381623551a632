-- +goose NO TRANSACTION
-- +goose Up

-- What a later version may add to the schema of any database, for the test of an upgrade with several replicas.
CREATE TABLE added (id BIGINT NOT NULL PRIMARY KEY);
ALTER TABLE findings ADD COLUMN added BIGINT NOT NULL DEFAULT 0;
ALTER TABLE scanner_images ADD COLUMN added BIGINT;
