-- +goose Up

-- A missing finding is fixed once data that was made after this is without it as well; NULL if any other version will do. What is
-- missing already waits for data of another day.
ALTER TABLE findings ADD COLUMN fixed_by_data_after INTEGER;
UPDATE findings SET fixed_by_data_after = gone_at + 86400000
WHERE gone_at IS NOT NULL AND fixed_at IS NULL AND report_id IN (SELECT id FROM reports WHERE engine = 'grype' OR engine LIKE 'clair %');
