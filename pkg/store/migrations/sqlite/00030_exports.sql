-- +goose Up

-- What a Scanner has exported to another tool. item is a workload, or '' for the export as a whole.
CREATE TABLE export_states (
    scanner TEXT NOT NULL,
    name    TEXT NOT NULL,
    item    TEXT NOT NULL,
    -- Opaque: the owner's.
    state   BLOB NOT NULL,
    PRIMARY KEY (scanner, name, item)
) WITHOUT ROWID;
