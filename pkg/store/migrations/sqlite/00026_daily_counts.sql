-- +goose Up

-- How many findings each namespace had on each day, in days since 1970-01-01 UTC, as they were counted last on that day, without suppressed
-- ones. The namespace '' has those of all namespaces together.
CREATE TABLE daily_counts (
    namespace       TEXT    NOT NULL,
    day             INTEGER NOT NULL,
    to_act_on       INTEGER NOT NULL,
    known_exploited INTEGER NOT NULL,
    critical        INTEGER NOT NULL,
    high            INTEGER NOT NULL,
    -- The images that run, and those of them with a result.
    images          INTEGER NOT NULL,
    scanned         INTEGER NOT NULL,
    PRIMARY KEY (namespace, day)
) WITHOUT ROWID;
CREATE INDEX daily_counts_by_day ON daily_counts (day);
