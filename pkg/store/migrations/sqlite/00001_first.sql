-- +goose Up

-- Conventions: times are unix milliseconds, UTC, NULL where unknown; lists are JSON, '' where empty;
-- booleans are 0 and 1; digests are as registries write them. Scope '' is the whole cluster.

-- "ScOp", so that no other program's database is mistaken for a store.
PRAGMA application_id = 1399017328;

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- One platform manifest as seen in one scope: what catalogues and reports are about.
CREATE TABLE manifests (
    id              INTEGER PRIMARY KEY,
    platform_digest TEXT    NOT NULL,
    scope           TEXT    NOT NULL,
    -- When it was made known, or a Scanner last ceased to have it. Counts only while no Scanner has it.
    last_used       INTEGER NOT NULL,
    UNIQUE (platform_digest, scope)
);
CREATE INDEX manifests_by_last_used ON manifests (last_used);

-- The alias index: which digest, on which platform, leads to which manifest.
CREATE TABLE images (
    digest      TEXT    NOT NULL,
    platform    TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    PRIMARY KEY (digest, platform, scope)
) WITHOUT ROWID;
CREATE INDEX images_by_manifest ON images (manifest_id);

CREATE TABLE catalogues (
    manifest_id   INTEGER PRIMARY KEY REFERENCES manifests (id) ON DELETE CASCADE,
    distro        TEXT    NOT NULL,
    packages      INTEGER NOT NULL,
    tool          TEXT    NOT NULL,
    catalogued_at INTEGER NOT NULL
);

-- AUTOINCREMENT: an id is never used again, so a reader in the middle of an artifact that is replaced finds
-- no further piece instead of a piece of another one.
CREATE TABLE artifacts (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    name        TEXT    NOT NULL,
    size        INTEGER NOT NULL,
    UNIQUE (manifest_id, name)
);
CREATE TABLE chunks (
    artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    data        BLOB    NOT NULL,
    UNIQUE (artifact_id, number)
);

CREATE TABLE jobs (
    namespace  TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    uid        TEXT    UNIQUE,
    pod_uid    TEXT,
    purpose    TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    platform   TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE TABLE data_versions (
    engine  TEXT NOT NULL PRIMARY KEY,
    version TEXT NOT NULL,
    built   INTEGER,
    tool    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE leases (
    id          TEXT    NOT NULL PRIMARY KEY,
    manifest_id INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine      TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    until       INTEGER NOT NULL,
    -- The engine's when it was lent: a failure is one of that data, even if it is reported after a change.
    data_version TEXT   NOT NULL,
    UNIQUE (manifest_id, engine)
) WITHOUT ROWID;
CREATE INDEX leases_by_holder ON leases (holder);

CREATE TABLE match_failures (
    manifest_id  INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine       TEXT    NOT NULL,
    data_version TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    message      TEXT    NOT NULL,
    failed_at    INTEGER,
    retry_at     INTEGER,
    PRIMARY KEY (manifest_id, engine)
) WITHOUT ROWID;

-- How often a lease of an image ended with its Job, without a word: perhaps the image kills whoever matches it.
CREATE TABLE silent_ends (
    manifest_id  INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine       TEXT    NOT NULL,
    -- The lease's. With other data the count begins anew.
    data_version TEXT    NOT NULL,
    times        INTEGER NOT NULL,
    PRIMARY KEY (manifest_id, engine)
) WITHOUT ROWID;

-- An id and its revision together name one state of a report's findings, for ever: neither comes twice.
CREATE TABLE reports (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    revision     INTEGER NOT NULL,
    manifest_id  INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    engine       TEXT    NOT NULL,
    data_version TEXT    NOT NULL,
    matched_at   INTEGER NOT NULL,
    distro       TEXT    NOT NULL,
    UNIQUE (manifest_id, engine)
);

-- What is true of a vulnerability wherever it is found, as the newest report of an engine says. One row for
-- each engine, since what one engine does not know must not hide what another does.
CREATE TABLE vulnerabilities (
    id              INTEGER PRIMARY KEY,
    canonical_id    TEXT    NOT NULL,
    engine          TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    cvss            REAL    NOT NULL,
    epss            REAL    NOT NULL,
    known_exploited INTEGER NOT NULL,
    UNIQUE (canonical_id, engine)
);

CREATE TABLE findings (
    id               INTEGER PRIMARY KEY,
    report_id        INTEGER NOT NULL REFERENCES reports (id) ON DELETE CASCADE,
    key              BLOB    NOT NULL,
    vulnerability_id INTEGER NOT NULL REFERENCES vulnerabilities (id),
    package          TEXT    NOT NULL,
    version          TEXT    NOT NULL,
    type             TEXT    NOT NULL,
    purl             TEXT    NOT NULL,
    -- Joined by NUL, which no path holds: a path need not be UTF-8, and this sorts as a list of paths does.
    paths            BLOB    NOT NULL,
    severity         INTEGER NOT NULL,
    -- The vulnerability's, repeated here so that one index range gives what concerns a receiver.
    known_exploited  INTEGER NOT NULL,
    fixable          INTEGER NOT NULL,
    fix_state        TEXT    NOT NULL,
    fix_versions     TEXT    NOT NULL,
    fix_available    INTEGER,
    aliases          TEXT    NOT NULL,
    advisories       TEXT    NOT NULL,
    -- A checksum of all that the engine says, by which an unchanged finding is known without reading it.
    content          INTEGER NOT NULL,
    first_seen       INTEGER NOT NULL,
    -- NULL while present: then it was last seen when the report was made.
    last_seen        INTEGER,
    gone_at          INTEGER,
    UNIQUE (report_id, key)
);
-- gone_at is in it although it is always NULL there: without it SQLite looks at each row to see that.
CREATE INDEX findings_present ON findings
    (report_id, known_exploited, severity, fixable, vulnerability_id, package, gone_at) WHERE gone_at IS NULL;
CREATE INDEX findings_by_vulnerability ON findings (vulnerability_id, report_id);

-- Which Scanner has which image. manifest_id is what the alias index gives for it, NULL while that is unknown.
CREATE TABLE scanner_images (
    id          INTEGER PRIMARY KEY,
    scanner     TEXT    NOT NULL,
    namespace   TEXT    NOT NULL,
    digest      TEXT    NOT NULL,
    platform    TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    engine      TEXT    NOT NULL,
    manifest_id INTEGER REFERENCES manifests (id) ON DELETE SET NULL,
    UNIQUE (scanner, digest, platform)
);
CREATE INDEX scanner_images_by_digest ON scanner_images (digest, scope);
CREATE INDEX scanner_images_by_manifest ON scanner_images (manifest_id, engine);
CREATE INDEX scanner_images_by_engine ON scanner_images (engine, manifest_id);

-- The workloads that run an image now.
CREATE TABLE workloads (
    image_id   INTEGER NOT NULL REFERENCES scanner_images (id) ON DELETE CASCADE,
    repository TEXT    NOT NULL,
    reference  TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    container  TEXT    NOT NULL,
    PRIMARY KEY (image_id, repository, reference, namespace, kind, name, container)
) WITHOUT ROWID;

CREATE TABLE receivers (
    id      INTEGER PRIMARY KEY,
    scanner TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    -- Opaque: the owner's.
    state   BLOB,
    UNIQUE (scanner, name)
);

-- What was said to whom. Vulnerabilities are named, not referred to: what was said stays said when the last
-- image with it is gone.
CREATE TABLE announcements (
    receiver_id  INTEGER NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    repository   TEXT    NOT NULL,
    canonical_id TEXT    NOT NULL,
    package      TEXT    NOT NULL,
    digest_id    TEXT    NOT NULL,
    announced_at INTEGER NOT NULL,
    PRIMARY KEY (receiver_id, repository, canonical_id, package)
) WITHOUT ROWID;

-- The repositories that a receiver has heard of.
CREATE TABLE known_repositories (
    receiver_id INTEGER NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    repository  TEXT    NOT NULL,
    PRIMARY KEY (receiver_id, repository)
) WITHOUT ROWID;
