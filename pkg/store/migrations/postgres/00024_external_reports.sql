-- +goose Up

CREATE TABLE external_reports (
    report_id        bigint PRIMARY KEY REFERENCES reports (id) ON DELETE CASCADE,
    namespace        text   COLLATE "C" NOT NULL,
    digest           text   COLLATE "C" NOT NULL,
    platform         text   COLLATE "C" NOT NULL,
    source           text   COLLATE "C" NOT NULL,
    text_sum         text   COLLATE "C" NOT NULL,
    content          text   COLLATE "C" NOT NULL,
    serial_number    text   COLLATE "C" NOT NULL,
    document_version bigint NOT NULL,
    made_at          bigint NOT NULL,
    tool             text   COLLATE "C" NOT NULL,
    saved_at         bigint NOT NULL,
    saved_by         text   COLLATE "C" NOT NULL,
    UNIQUE (namespace, digest, platform, source)
);

CREATE TABLE announced_sources (
    scanner text COLLATE "C" NOT NULL,
    source  text COLLATE "C" NOT NULL,
    PRIMARY KEY (scanner, source)
);
