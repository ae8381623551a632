-- +goose NO TRANSACTION
-- +goose Up

-- See migration 30 of SQLite.
CREATE TABLE IF NOT EXISTS export_states (
    scanner VARBINARY(255) NOT NULL,
    name    VARBINARY(255) NOT NULL,
    item    VARBINARY(64)  NOT NULL,
    state   MEDIUMBLOB     NOT NULL,
    PRIMARY KEY (scanner, name, item)
) ENGINE = InnoDB;
