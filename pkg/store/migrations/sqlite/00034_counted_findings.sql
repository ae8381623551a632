-- +goose Up

-- The findings that a scheduled summary counted, so that the next one can say which were opened and which have ended since.
CREATE TABLE counted_findings (
    receiver_id INTEGER NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    message_id  TEXT    NOT NULL,
    repository  TEXT    NOT NULL,
    -- While it is equal, so are the findings.
    state       TEXT    NOT NULL,
    -- 8 bytes of each finding's hash, sorted.
    findings    BLOB    NOT NULL,
    PRIMARY KEY (receiver_id, message_id, repository)
);
