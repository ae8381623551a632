-- +goose Up

-- The data with which a finding was first missing, and when a report made with other data missed it as well: only from then
-- on it is fixed. NULL while it is present. Findings that have been missing count as fixed.
ALTER TABLE findings ADD COLUMN gone_data_version TEXT;
ALTER TABLE findings ADD COLUMN fixed_at INTEGER;
UPDATE findings SET fixed_at = gone_at, gone_data_version = '' WHERE gone_at IS NOT NULL;
-- When the store first knew a fixed version; the engine's own date, if it has one, is fix_available.
ALTER TABLE findings ADD COLUMN fixable_since INTEGER;
UPDATE findings SET fixable_since = max(first_seen, coalesce(fix_available, first_seen)) WHERE fixable = 1;
-- The severities that it had before, oldest first, as a JSON list of {"severity":…,"until":…}; '' if it never changed.
ALTER TABLE findings ADD COLUMN severity_history TEXT NOT NULL DEFAULT '';
CREATE INDEX findings_gone ON findings (gone_at, gone_data_version, report_id) WHERE gone_at IS NOT NULL;
-- How many findings a report has.
ALTER TABLE reports ADD COLUMN present INTEGER NOT NULL DEFAULT 0;
UPDATE reports SET present = (SELECT count(*) FROM findings f INDEXED BY findings_present WHERE f.report_id = reports.id AND f.gone_at IS NULL);

-- When the store first knew it to be exploited; NULL while it is not.
ALTER TABLE vulnerabilities ADD COLUMN known_exploited_since INTEGER;
UPDATE vulnerabilities SET known_exploited_since = (SELECT min(first_seen) FROM findings f WHERE f.vulnerability_id = vulnerabilities.id)
WHERE known_exploited = 1;

-- Since when an engine has its data; NULL if that is not known.
ALTER TABLE data_versions ADD COLUMN since INTEGER;

-- The receivers that a workload names, sorted and joined by commas; '' if it names none.
ALTER TABLE workloads ADD COLUMN receivers TEXT NOT NULL DEFAULT '';

-- The workloads that ran an image last, while nothing runs it.
CREATE TABLE left_workloads (
    image_id   INTEGER NOT NULL REFERENCES scanner_images (id) ON DELETE CASCADE,
    repository TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    container  TEXT    NOT NULL,
    PRIMARY KEY (image_id, repository, namespace, kind, name, container)
) WITHOUT ROWID;

-- What was true of a finding when it was told last: what differs from it now is news. -1 where that was not recorded: then
-- nothing is claimed to have changed until it is.
ALTER TABLE announcements ADD COLUMN severity INTEGER NOT NULL DEFAULT -1;
ALTER TABLE announcements ADD COLUMN fixable INTEGER NOT NULL DEFAULT -1;
ALTER TABLE announcements ADD COLUMN known_exploited INTEGER NOT NULL DEFAULT -1;
-- The other ids by which it was known, as a JSON list: under one of them it is no news.
ALTER TABLE announcements ADD COLUMN aliases TEXT NOT NULL DEFAULT '';
-- When every running image of the repository was without it, told or not; NULL while it is there.
ALTER TABLE announcements ADD COLUMN fixed_at INTEGER;
CREATE INDEX announcements_fixed ON announcements (fixed_at) WHERE fixed_at IS NOT NULL;
-- 1 while exceptions cover it: it is news again when they do not.
ALTER TABLE announcements ADD COLUMN excepted INTEGER NOT NULL DEFAULT 0;

-- The log of what was said, kept for a time and apart from what decides: it stays when its receiver is removed.
CREATE TABLE messages (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    scanner   TEXT    NOT NULL,
    receiver  TEXT    NOT NULL,
    digest_id TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    title     TEXT    NOT NULL,
    findings  INTEGER NOT NULL,
    said_at   INTEGER NOT NULL,
    -- The message as JSON, zstd.
    message   BLOB    NOT NULL
);
CREATE INDEX messages_by_receiver ON messages (scanner, receiver, id);
CREATE INDEX messages_by_time ON messages (said_at);
