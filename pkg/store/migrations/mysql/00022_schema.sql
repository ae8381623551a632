-- +goose NO TRANSACTION
-- +goose Up

-- The schema of migration 22 of SQLite, whose files say what each table is for.
--
-- Conventions: texts compare bytewise, so they are VARBINARY and BLOB and hold UTF-8; times are Unix milliseconds, UTC, NULL where unknown;
-- lists are JSON, '' where empty; truth values are 0 and 1; digests are as registries write them. Scope '' is the whole cluster.
-- store_revision is the revision with which a row was written last.
--
-- MySQL commits at each statement that defines something. Every statement can run again, so an interrupted migration is repeated.

CREATE TABLE IF NOT EXISTS meta (
    name  VARBINARY(255) PRIMARY KEY,
    value MEDIUMBLOB     NOT NULL
) ENGINE = InnoDB;

-- The store's revision: each writing transaction raises it, so it orders what was committed. One row, whose lock also lets writers wait for
-- each other.
CREATE TABLE IF NOT EXISTS store_revision (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO store_revision (id, revision) VALUES (1, 0);

CREATE TABLE IF NOT EXISTS manifests (
    id              BIGINT         AUTO_INCREMENT PRIMARY KEY,
    platform_digest VARBINARY(255) NOT NULL,
    scope           VARBINARY(255) NOT NULL,
    last_used       BIGINT         NOT NULL,
    namespace       VARBINARY(255) NOT NULL DEFAULT '',
    UNIQUE KEY manifests_by_key (platform_digest, scope),
    KEY manifests_by_last_used (last_used),
    KEY manifests_by_namespace (namespace)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS images (
    digest      VARBINARY(255) NOT NULL,
    platform    VARBINARY(255) NOT NULL,
    scope       VARBINARY(255) NOT NULL,
    manifest_id BIGINT         NOT NULL,
    PRIMARY KEY (digest, platform, scope),
    KEY images_by_manifest (manifest_id),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS engine_manifests (
    engine          VARBINARY(255) NOT NULL,
    platform_digest VARBINARY(255) NOT NULL,
    ours            BIGINT         NOT NULL,
    PRIMARY KEY (engine, platform_digest)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS artifacts (
    id          BIGINT         AUTO_INCREMENT PRIMARY KEY,
    manifest_id BIGINT         NOT NULL,
    name        VARBINARY(255) NOT NULL,
    size        BIGINT         NOT NULL,
    UNIQUE KEY artifacts_by_key (manifest_id, name),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS chunks (
    artifact_id BIGINT   NOT NULL,
    number      BIGINT   NOT NULL,
    data        LONGBLOB NOT NULL,
    PRIMARY KEY (artifact_id, number),
    FOREIGN KEY (artifact_id) REFERENCES artifacts (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS jobs (
    namespace   VARBINARY(255) NOT NULL,
    name        VARBINARY(255) NOT NULL,
    uid         VARBINARY(255),
    pod_uid     VARBINARY(255),
    purpose     VARBINARY(255) NOT NULL,
    digest      VARBINARY(255) NOT NULL,
    platform    VARBINARY(255) NOT NULL,
    scope       VARBINARY(255) NOT NULL,
    created_at  BIGINT         NOT NULL,
    scanner     VARBINARY(255) NOT NULL DEFAULT '',
    memory      BIGINT         NOT NULL DEFAULT 0,
    most_memory BIGINT         NOT NULL DEFAULT 0,
    ended_at    BIGINT,
    failed      BIGINT         NOT NULL DEFAULT 0,
    worker      VARBINARY(255) NOT NULL DEFAULT '',
    result      MEDIUMBLOB     NOT NULL DEFAULT (''),
    UNIQUE KEY jobs_by_uid (uid),
    PRIMARY KEY (namespace, name)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS data_versions (
    engine  VARBINARY(255) PRIMARY KEY,
    version VARBINARY(512) NOT NULL,
    built   BIGINT,
    tool    MEDIUMBLOB     NOT NULL,
    since   BIGINT
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS leases (
    id           VARBINARY(255) PRIMARY KEY,
    manifest_id  BIGINT         NOT NULL,
    engine       VARBINARY(255) NOT NULL,
    holder       VARBINARY(255) NOT NULL,
    until        BIGINT         NOT NULL,
    data_version VARBINARY(512) NOT NULL,
    namespace    VARBINARY(255) NOT NULL DEFAULT '',
    UNIQUE KEY leases_by_key (manifest_id, engine),
    KEY leases_by_holder (holder),
    KEY leases_by_engine (engine, until),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS match_failures (
    manifest_id  BIGINT         NOT NULL,
    engine       VARBINARY(255) NOT NULL,
    data_version VARBINARY(512) NOT NULL,
    reason       MEDIUMBLOB     NOT NULL,
    message      MEDIUMBLOB     NOT NULL,
    failed_at    BIGINT,
    retry_at     BIGINT,
    PRIMARY KEY (manifest_id, engine),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS silent_ends (
    manifest_id  BIGINT         NOT NULL,
    engine       VARBINARY(255) NOT NULL,
    data_version VARBINARY(512) NOT NULL,
    times        BIGINT         NOT NULL,
    PRIMARY KEY (manifest_id, engine),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS reports (
    id           BIGINT         AUTO_INCREMENT PRIMARY KEY,
    revision     BIGINT         NOT NULL,
    manifest_id  BIGINT         NOT NULL,
    engine       VARBINARY(255) NOT NULL,
    data_version VARBINARY(512) NOT NULL,
    matched_at   BIGINT         NOT NULL,
    distro       MEDIUMBLOB     NOT NULL,
    not_covered  MEDIUMBLOB     NOT NULL DEFAULT (''),
    present      BIGINT         NOT NULL DEFAULT 0,
    bytes        BIGINT         NOT NULL DEFAULT 0,
    store_revision BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY reports_by_key (manifest_id, engine),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS vulnerabilities (
    id                    BIGINT         AUTO_INCREMENT PRIMARY KEY,
    canonical_id          VARBINARY(256) NOT NULL,
    engine                VARBINARY(255) NOT NULL,
    description           LONGBLOB       NOT NULL,
    url                   MEDIUMBLOB     NOT NULL,
    cvss                  DOUBLE         NOT NULL,
    epss                  DOUBLE         NOT NULL,
    known_exploited       BIGINT         NOT NULL,
    known_exploited_since BIGINT,
    UNIQUE KEY vulnerabilities_by_key (canonical_id, engine)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS findings (
    id                  BIGINT         AUTO_INCREMENT PRIMARY KEY,
    report_id           BIGINT         NOT NULL,
    "key"               BINARY(32)     NOT NULL,
    vulnerability_id    BIGINT         NOT NULL,
    package             LONGBLOB       NOT NULL,
    version             LONGBLOB       NOT NULL,
    type                MEDIUMBLOB     NOT NULL,
    purl                LONGBLOB       NOT NULL,
    paths               LONGBLOB       NOT NULL,
    severity            BIGINT         NOT NULL,
    known_exploited     BIGINT         NOT NULL,
    fixable             BIGINT         NOT NULL,
    fix_state           MEDIUMBLOB     NOT NULL,
    fix_versions        LONGBLOB       NOT NULL,
    fix_available       BIGINT,
    aliases             LONGBLOB       NOT NULL,
    advisories          LONGBLOB       NOT NULL,
    content             BIGINT         NOT NULL,
    first_seen          BIGINT         NOT NULL,
    last_seen           BIGINT,
    gone_at             BIGINT,
    gone_data_version   VARBINARY(512),
    fixed_at            BIGINT,
    fixable_since       BIGINT,
    severity_history    MEDIUMBLOB     NOT NULL DEFAULT (''),
    fixed_by_data_after BIGINT,
    UNIQUE KEY findings_by_key (report_id, "key"),
    KEY findings_present (report_id, gone_at, known_exploited, severity, fixable, vulnerability_id),
    KEY findings_by_vulnerability (vulnerability_id, report_id),
    KEY findings_gone (gone_at, gone_data_version, report_id),
    FOREIGN KEY (report_id) REFERENCES reports (id) ON DELETE CASCADE,
    FOREIGN KEY (vulnerability_id) REFERENCES vulnerabilities (id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS vulnerability_names (
    name             VARBINARY(512) NOT NULL,
    vulnerability_id BIGINT         NOT NULL,
    PRIMARY KEY (name, vulnerability_id),
    KEY vulnerability_names_by_vulnerability (vulnerability_id),
    FOREIGN KEY (vulnerability_id) REFERENCES vulnerabilities (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS catalogues (
    manifest_id   BIGINT         NOT NULL,
    engine        VARBINARY(255) NOT NULL,
    distro        MEDIUMBLOB     NOT NULL,
    packages      BIGINT         NOT NULL,
    tool          MEDIUMBLOB     NOT NULL,
    catalogued_at BIGINT         NOT NULL,
    PRIMARY KEY (manifest_id, engine),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS scanner_images (
    id          BIGINT         AUTO_INCREMENT PRIMARY KEY,
    scanner     VARBINARY(255) NOT NULL,
    cluster     BIGINT         NOT NULL DEFAULT 0,
    namespace   VARBINARY(255) NOT NULL,
    digest      VARBINARY(255) NOT NULL,
    platform    VARBINARY(255) NOT NULL,
    scope       VARBINARY(255) NOT NULL,
    engine      VARBINARY(255) NOT NULL,
    manifest_id BIGINT,
    suspended   BIGINT         NOT NULL DEFAULT 0,
    recorded_at BIGINT,
    store_revision BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY scanner_images_by_key (scanner, digest, platform, namespace),
    KEY scanner_images_by_digest (digest, scope),
    KEY scanner_images_by_manifest (manifest_id, engine),
    KEY scanner_images_by_engine (engine, suspended, manifest_id),
    KEY scanner_images_by_namespace (namespace),
    KEY scanner_images_namespaced (scanner, cluster, namespace),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE SET NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS workloads (
    image_id   BIGINT          NOT NULL,
    repository VARBINARY(512)  NOT NULL,
    reference  VARBINARY(1024) NOT NULL,
    namespace  VARBINARY(255)  NOT NULL,
    kind       VARBINARY(255)  NOT NULL,
    name       VARBINARY(255)  NOT NULL,
    container  VARBINARY(255)  NOT NULL,
    receivers  MEDIUMBLOB      NOT NULL DEFAULT (''),
    completes  BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (image_id, repository, reference, namespace, kind, name, container),
    KEY workloads_by_name (name, namespace, kind, container, repository),
    FOREIGN KEY (image_id) REFERENCES scanner_images (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS left_workloads (
    image_id   BIGINT          NOT NULL,
    repository VARBINARY(512)  NOT NULL,
    namespace  VARBINARY(255)  NOT NULL,
    kind       VARBINARY(255)  NOT NULL,
    name       VARBINARY(255)  NOT NULL,
    container  VARBINARY(255)  NOT NULL,
    reference  VARBINARY(1024) NOT NULL DEFAULT '',
    receivers  MEDIUMBLOB      NOT NULL DEFAULT (''),
    left_at    BIGINT,
    ended      BIGINT          NOT NULL DEFAULT 0,
    superseded BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (image_id, repository, namespace, kind, name, container),
    KEY left_workloads_by_name (name, namespace, kind, container, repository),
    FOREIGN KEY (image_id) REFERENCES scanner_images (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS receivers (
    id      BIGINT         AUTO_INCREMENT PRIMARY KEY,
    scanner VARBINARY(255) NOT NULL,
    name    VARBINARY(255) NOT NULL,
    state   LONGBLOB,
    UNIQUE KEY receivers_by_key (scanner, name)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS announcements (
    receiver_id     BIGINT         NOT NULL,
    repository      VARBINARY(512) NOT NULL,
    canonical_id    VARBINARY(256) NOT NULL,
    package         LONGBLOB       NOT NULL,
    digest_id       VARBINARY(255) NOT NULL,
    announced_at    BIGINT         NOT NULL,
    severity        BIGINT         NOT NULL DEFAULT -1,
    fixable         BIGINT         NOT NULL DEFAULT -1,
    known_exploited BIGINT         NOT NULL DEFAULT -1,
    aliases         LONGBLOB       NOT NULL DEFAULT (''),
    fixed_at        BIGINT,
    excepted        BIGINT         NOT NULL DEFAULT 0,
    released_at     BIGINT,
    released_from   MEDIUMBLOB     NOT NULL DEFAULT (''),
    package_key     VARBINARY(512) GENERATED ALWAYS AS (CASE WHEN octet_length(package) <= 512 THEN package ELSE concat('sha256:', sha2(package, 256)) END) STORED,
    UNIQUE KEY announcements_by_key (receiver_id, repository, canonical_id, package_key),
    KEY announcements_fixed (fixed_at),
    KEY announcements_released (receiver_id, repository, released_at),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS known_repositories (
    receiver_id BIGINT         NOT NULL,
    repository  VARBINARY(512) NOT NULL,
    PRIMARY KEY (receiver_id, repository),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS unused_repositories (
    receiver_id BIGINT         NOT NULL,
    repository  VARBINARY(512) NOT NULL,
    since       BIGINT         NOT NULL,
    PRIMARY KEY (receiver_id, repository),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS memory_exceeded (
    digest   VARBINARY(255) NOT NULL,
    platform VARBINARY(255) NOT NULL,
    scope    VARBINARY(255) NOT NULL,
    bytes    BIGINT         NOT NULL,
    noted_at BIGINT         NOT NULL,
    PRIMARY KEY (digest, platform, scope)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS messages (
    id          BIGINT         AUTO_INCREMENT PRIMARY KEY,
    scanner     VARBINARY(255) NOT NULL,
    receiver    VARBINARY(255) NOT NULL,
    digest_id   VARBINARY(255) NOT NULL,
    kind        VARBINARY(255) NOT NULL,
    title       MEDIUMBLOB     NOT NULL,
    findings    BIGINT         NOT NULL,
    said_at     BIGINT         NOT NULL,
    message     LONGBLOB       NOT NULL,
    unconfirmed BIGINT         NOT NULL DEFAULT 0,
    store_revision BIGINT NOT NULL DEFAULT 0,
    KEY messages_by_receiver (scanner, receiver, id),
    KEY messages_by_time (said_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS present_counts (
    engine  VARBINARY(255) NOT NULL,
    scope   VARBINARY(255) NOT NULL,
    present BIGINT         NOT NULL,
    PRIMARY KEY (engine, scope)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS loss_counts (
    engine       VARBINARY(255) NOT NULL,
    scope        VARBINARY(255) NOT NULL,
    data_version VARBINARY(512) NOT NULL,
    day          BIGINT         NOT NULL,
    missing      BIGINT         NOT NULL,
    since        BIGINT         NOT NULL,
    PRIMARY KEY (engine, scope, data_version, day)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS receiver_records (
    receiver_id BIGINT         PRIMARY KEY,
    namespace   VARBINARY(255) NOT NULL DEFAULT '',
    bytes       BIGINT         NOT NULL DEFAULT 0,
    KEY receiver_records_by_namespace (namespace),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS threads (
    id          BIGINT         AUTO_INCREMENT PRIMARY KEY,
    receiver_id BIGINT         NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    channel     VARBINARY(255) NOT NULL,
    timestamp   VARBINARY(255) NOT NULL,
    UNIQUE KEY threads_by_key (receiver_id, message_id),
    FOREIGN KEY (receiver_id) REFERENCES receivers (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS matchable (
    id          BIGINT         AUTO_INCREMENT PRIMARY KEY,
    engine      VARBINARY(255) NOT NULL,
    namespace   VARBINARY(255) NOT NULL,
    manifest_id BIGINT         NOT NULL,
    made_with   VARBINARY(512) NOT NULL,
    matched_at  BIGINT         NOT NULL,
    retry_at    BIGINT,
    failed_at   BIGINT,
    UNIQUE KEY matchable_by_key (manifest_id, engine, namespace),
    KEY matchable_by_namespace (engine, retry_at, namespace, made_with, matched_at, manifest_id),
    KEY matchable_by_data (engine, retry_at, made_with, namespace, manifest_id),
    KEY matchable_by_retry (engine, retry_at),
    KEY matchable_by_failure (engine, failed_at),
    FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
) ENGINE = InnoDB;

CREATE OR REPLACE VIEW matchable_images AS
SELECT si.engine, si.namespace, si.manifest_id,
    CASE WHEN r.id IS NULL THEN '' ELSE concat('=', r.data_version) END AS made_with,
    coalesce(r.matched_at, 0) AS matched_at,
    f.retry_at, f.failed_at
FROM scanner_images si
JOIN catalogues c ON c.manifest_id = si.manifest_id AND c.engine = si.engine
LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
LEFT JOIN data_versions d ON d.engine = si.engine
LEFT JOIN match_failures f ON f.manifest_id = si.manifest_id AND f.engine = si.engine
    AND f.data_version = coalesce(d.version, '') AND f.retry_at IS NOT NULL
WHERE si.suspended = 0;

-- The queue of images to match follows scanner_images, catalogues, reports, match_failures and data_versions. A foreign key that deletes rows
-- runs no trigger here; the rows of the queue that belong to them have the same foreign key.
DROP PROCEDURE IF EXISTS matchable_add;
-- +goose StatementBegin
CREATE PROCEDURE matchable_add(of_manifest BIGINT, of_engine VARBINARY(255), of_namespace VARBINARY(255))
    INSERT INTO matchable (engine, namespace, manifest_id, made_with, matched_at, retry_at, failed_at)
    SELECT DISTINCT i.engine, i.namespace, i.manifest_id, i.made_with, i.matched_at, i.retry_at, i.failed_at FROM matchable_images i
    WHERE i.manifest_id = of_manifest AND i.engine = of_engine AND (of_namespace IS NULL OR i.namespace = of_namespace)
    ON DUPLICATE KEY UPDATE matchable.engine = matchable.engine;
-- +goose StatementEnd
DROP PROCEDURE IF EXISTS matchable_remove;
-- +goose StatementBegin
CREATE PROCEDURE matchable_remove(of_manifest BIGINT, of_engine VARBINARY(255), of_namespace VARBINARY(255))
    DELETE FROM matchable WHERE manifest_id = of_manifest AND engine = of_engine AND namespace = of_namespace
    AND NOT EXISTS (SELECT 1 FROM scanner_images si
        WHERE si.manifest_id = of_manifest AND si.engine = of_engine AND si.namespace = of_namespace AND si.suspended = 0);
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_use_added;
-- +goose StatementBegin
CREATE TRIGGER matchable_use_added AFTER INSERT ON scanner_images FOR EACH ROW
BEGIN
    IF new.manifest_id IS NOT NULL THEN
        CALL matchable_add(new.manifest_id, new.engine, new.namespace);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_use_changed;
-- +goose StatementBegin
CREATE TRIGGER matchable_use_changed AFTER UPDATE ON scanner_images FOR EACH ROW
BEGIN
    IF old.engine <> new.engine OR old.namespace <> new.namespace OR NOT old.manifest_id <=> new.manifest_id OR old.suspended <> new.suspended THEN
        CALL matchable_remove(old.manifest_id, old.engine, old.namespace);
        CALL matchable_add(new.manifest_id, new.engine, new.namespace);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_use_removed;
-- +goose StatementBegin
CREATE TRIGGER matchable_use_removed AFTER DELETE ON scanner_images FOR EACH ROW
BEGIN
    IF old.manifest_id IS NOT NULL THEN
        CALL matchable_remove(old.manifest_id, old.engine, old.namespace);
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_catalog_added;
-- +goose StatementBegin
CREATE TRIGGER matchable_catalog_added AFTER INSERT ON catalogues FOR EACH ROW
    CALL matchable_add(new.manifest_id, new.engine, NULL);
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_catalog_removed;
-- +goose StatementBegin
CREATE TRIGGER matchable_catalog_removed AFTER DELETE ON catalogues FOR EACH ROW
    DELETE FROM matchable WHERE manifest_id = old.manifest_id AND engine = old.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_report_added;
-- +goose StatementBegin
CREATE TRIGGER matchable_report_added AFTER INSERT ON reports FOR EACH ROW
    UPDATE matchable SET made_with = concat('=', new.data_version), matched_at = new.matched_at
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_report_changed;
-- +goose StatementBegin
CREATE TRIGGER matchable_report_changed AFTER UPDATE ON reports FOR EACH ROW
BEGIN
    IF old.data_version <> new.data_version OR old.matched_at <> new.matched_at THEN
        UPDATE matchable SET made_with = concat('=', new.data_version), matched_at = new.matched_at
        WHERE manifest_id = new.manifest_id AND engine = new.engine;
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_report_removed;
-- +goose StatementBegin
CREATE TRIGGER matchable_report_removed AFTER DELETE ON reports FOR EACH ROW
    UPDATE matchable SET made_with = '', matched_at = 0 WHERE manifest_id = old.manifest_id AND engine = old.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_failure_added;
-- +goose StatementBegin
CREATE TRIGGER matchable_failure_added AFTER INSERT ON match_failures FOR EACH ROW
    UPDATE matchable SET failed_at = new.failed_at, retry_at = CASE
        WHEN new.data_version = coalesce((SELECT version FROM data_versions WHERE engine = new.engine), '') THEN new.retry_at END
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_failure_changed;
-- +goose StatementBegin
CREATE TRIGGER matchable_failure_changed AFTER UPDATE ON match_failures FOR EACH ROW
    UPDATE matchable SET failed_at = new.failed_at, retry_at = CASE
        WHEN new.data_version = coalesce((SELECT version FROM data_versions WHERE engine = new.engine), '') THEN new.retry_at END
    WHERE manifest_id = new.manifest_id AND engine = new.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_failure_removed;
-- +goose StatementBegin
CREATE TRIGGER matchable_failure_removed AFTER DELETE ON match_failures FOR EACH ROW
    UPDATE matchable SET retry_at = NULL WHERE manifest_id = old.manifest_id AND engine = old.engine AND retry_at IS NOT NULL;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_data_added;
-- +goose StatementBegin
CREATE TRIGGER matchable_data_added AFTER INSERT ON data_versions FOR EACH ROW
    UPDATE matchable m JOIN match_failures f ON f.manifest_id = m.manifest_id AND f.engine = m.engine
    SET m.retry_at = CASE WHEN f.data_version = new.version THEN f.retry_at END,
        m.failed_at = CASE WHEN f.data_version = new.version THEN f.failed_at END
    WHERE m.engine = new.engine;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS matchable_data_changed;
-- +goose StatementBegin
CREATE TRIGGER matchable_data_changed AFTER UPDATE ON data_versions FOR EACH ROW
BEGIN
    IF old.version <> new.version THEN
        UPDATE matchable m JOIN match_failures f ON f.manifest_id = m.manifest_id AND f.engine = m.engine
        SET m.retry_at = CASE WHEN f.data_version = new.version THEN f.retry_at END,
            m.failed_at = CASE WHEN f.data_version = new.version THEN f.failed_at END
        WHERE m.engine = new.engine;
    END IF;
END;
-- +goose StatementEnd

-- The bytes of each receiver's records, and the namespace that they count in.
DROP TRIGGER IF EXISTS receiver_records_receiver_added;
-- +goose StatementBegin
CREATE TRIGGER receiver_records_receiver_added AFTER INSERT ON receivers FOR EACH ROW
    INSERT INTO receiver_records (receiver_id, namespace) VALUES (new.id,
        coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner AND si.cluster = 0 LIMIT 1), ''));
-- +goose StatementEnd

DROP TRIGGER IF EXISTS receiver_records_receiver_changed;
-- +goose StatementBegin
CREATE TRIGGER receiver_records_receiver_changed AFTER UPDATE ON receivers FOR EACH ROW
    UPDATE receiver_records SET namespace = coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner AND si.cluster = 0 LIMIT 1), '')
    WHERE receiver_id = new.id AND namespace = '';
-- +goose StatementEnd

DROP TRIGGER IF EXISTS receiver_records_announcement_added;
-- +goose StatementBegin
CREATE TRIGGER receiver_records_announcement_added AFTER INSERT ON announcements FOR EACH ROW
    UPDATE receiver_records SET bytes = bytes + 100 + octet_length(new.repository) + octet_length(new.canonical_id) + octet_length(new.package),
        namespace = CASE namespace WHEN '' THEN
            coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = (SELECT r.scanner FROM receivers r WHERE r.id = new.receiver_id) AND si.cluster = 0 LIMIT 1), '')
            ELSE namespace END
    WHERE receiver_id = new.receiver_id;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS receiver_records_announcement_removed;
-- +goose StatementBegin
CREATE TRIGGER receiver_records_announcement_removed AFTER DELETE ON announcements FOR EACH ROW
    UPDATE receiver_records SET bytes = bytes - 100 - octet_length(old.repository) - octet_length(old.canonical_id) - octet_length(old.package)
    WHERE receiver_id = old.receiver_id;
-- +goose StatementEnd
