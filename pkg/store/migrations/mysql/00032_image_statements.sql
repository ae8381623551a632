-- +goose NO TRANSACTION
-- +goose Up

-- See migration 32 of SQLite.
CREATE TABLE IF NOT EXISTS image_statements (
    manifest_id BIGINT         NOT NULL,
    policy      VARBINARY(255) NOT NULL,
    statements  LONGBLOB       NOT NULL,
    amount      BIGINT         NOT NULL,
    hash        VARBINARY(255) NOT NULL,
    bytes       BIGINT         NOT NULL,
    problem     MEDIUMBLOB     NOT NULL,
    PRIMARY KEY (manifest_id, policy),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;
DROP PROCEDURE IF EXISTS add_vex_policy;
-- +goose StatementBegin
CREATE PROCEDURE add_vex_policy()
BEGIN
    IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database() AND table_name = 'jobs' AND column_name = 'vex_policy') THEN
        ALTER TABLE jobs ADD COLUMN vex_policy VARBINARY(255) NOT NULL DEFAULT '';
    END IF;
END;
-- +goose StatementEnd
CALL add_vex_policy();
DROP PROCEDURE add_vex_policy;
