-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS counted_findings (
    receiver_id BIGINT         NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    repository  VARBINARY(512) NOT NULL,
    state       VARBINARY(255) NOT NULL,
    findings    MEDIUMBLOB     NOT NULL,
    PRIMARY KEY (receiver_id, message_id, repository),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;
