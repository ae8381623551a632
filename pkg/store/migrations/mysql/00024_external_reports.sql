-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS external_reports (
    report_id        BIGINT         PRIMARY KEY,
    namespace        VARBINARY(255) NOT NULL,
    digest           VARBINARY(255) NOT NULL,
    platform         VARBINARY(255) NOT NULL,
    source           VARBINARY(255) NOT NULL,
    text_sum         VARBINARY(255) NOT NULL,
    content          VARBINARY(255) NOT NULL,
    serial_number    VARBINARY(255) NOT NULL,
    document_version BIGINT         NOT NULL,
    made_at          BIGINT         NOT NULL,
    tool             VARBINARY(255) NOT NULL,
    saved_at         BIGINT         NOT NULL,
    saved_by         MEDIUMBLOB     NOT NULL,
    UNIQUE KEY external_reports_by_key (namespace, digest, platform, source),
    FOREIGN KEY (report_id) REFERENCES reports (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS announced_sources (
    scanner VARBINARY(255) NOT NULL,
    source  VARBINARY(255) NOT NULL,
    PRIMARY KEY (scanner, source)
) ENGINE = InnoDB;
