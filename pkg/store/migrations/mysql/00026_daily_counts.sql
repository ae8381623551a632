-- +goose NO TRANSACTION
-- +goose Up

-- See migration 26 of SQLite.
CREATE TABLE IF NOT EXISTS daily_counts (
    namespace       VARBINARY(255) NOT NULL,
    day             BIGINT         NOT NULL,
    to_act_on       BIGINT         NOT NULL,
    known_exploited BIGINT         NOT NULL,
    critical        BIGINT         NOT NULL,
    high            BIGINT         NOT NULL,
    images          BIGINT         NOT NULL,
    scanned         BIGINT         NOT NULL,
    PRIMARY KEY (namespace, day),
    INDEX daily_counts_by_day (day)
) ENGINE = InnoDB;
