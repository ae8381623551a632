-- +goose Up

CREATE TABLE counted_findings (
    receiver_id bigint NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    message_id  text   COLLATE "C" NOT NULL,
    repository  text   COLLATE "C" NOT NULL,
    state       text   COLLATE "C" NOT NULL,
    findings    bytea  NOT NULL,
    PRIMARY KEY (receiver_id, message_id, repository)
);
