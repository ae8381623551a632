-- +goose Up

-- See migration 26 of SQLite.
CREATE TABLE daily_counts (
    namespace       text   COLLATE "C" NOT NULL,
    day             bigint NOT NULL,
    to_act_on       bigint NOT NULL,
    known_exploited bigint NOT NULL,
    critical        bigint NOT NULL,
    high            bigint NOT NULL,
    images          bigint NOT NULL,
    scanned         bigint NOT NULL,
    PRIMARY KEY (namespace, day)
);
CREATE INDEX daily_counts_by_day ON daily_counts (day);
