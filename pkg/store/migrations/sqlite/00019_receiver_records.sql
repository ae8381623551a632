-- +goose Up

-- How many bytes are recorded of what each receiver knows, and in which namespace its Scanner is ('' until it has an image). Triggers keep the
-- sum: adding it up would take a scan of announcements each time.
CREATE TABLE receiver_records (
    receiver_id INTEGER PRIMARY KEY REFERENCES receivers (id) ON DELETE CASCADE,
    namespace   TEXT    NOT NULL DEFAULT '',
    bytes       INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX receiver_records_by_namespace ON receiver_records (namespace);

INSERT INTO receiver_records (receiver_id, namespace, bytes)
SELECT r.id, coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = r.scanner LIMIT 1), ''),
    coalesce((SELECT sum(100 + octet_length(a.repository) + octet_length(a.canonical_id) + octet_length(a.package))
        FROM announcements a WHERE a.receiver_id = r.id), 0)
FROM receivers r;

-- +goose StatementBegin
CREATE TRIGGER receiver_records_receiver AFTER INSERT ON receivers BEGIN
    INSERT INTO receiver_records (receiver_id, namespace)
    VALUES (new.id, coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner LIMIT 1), ''));
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receiver_records_state AFTER UPDATE OF state ON receivers BEGIN
    UPDATE receiver_records
    SET namespace = coalesce((SELECT si.namespace FROM scanner_images si WHERE si.scanner = new.scanner LIMIT 1), '')
    WHERE receiver_id = new.id AND namespace = '';
END;
-- +goose StatementEnd

-- An update leaves the key as it is, and the sum with it.
-- +goose StatementBegin
CREATE TRIGGER receiver_records_added AFTER INSERT ON announcements BEGIN
    UPDATE receiver_records SET bytes = bytes + 100 + octet_length(new.repository) + octet_length(new.canonical_id) + octet_length(new.package),
        namespace = CASE namespace WHEN '' THEN coalesce((SELECT si.namespace FROM receivers r JOIN scanner_images si ON si.scanner = r.scanner
            WHERE r.id = new.receiver_id LIMIT 1), '') ELSE namespace END
    WHERE receiver_id = new.receiver_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER receiver_records_removed AFTER DELETE ON announcements BEGIN
    UPDATE receiver_records SET bytes = bytes - 100 - octet_length(old.repository) - octet_length(old.canonical_id) - octet_length(old.package)
    WHERE receiver_id = old.receiver_id;
END;
-- +goose StatementEnd
