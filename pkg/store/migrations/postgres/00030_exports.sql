-- +goose Up

-- See migration 30 of SQLite.
CREATE TABLE export_states (
    scanner text  COLLATE "C" NOT NULL,
    name    text  COLLATE "C" NOT NULL,
    item    text  COLLATE "C" NOT NULL,
    state   bytea NOT NULL,
    PRIMARY KEY (scanner, name, item)
);
