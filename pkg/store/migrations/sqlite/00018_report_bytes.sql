-- +goose Up

-- What the findings of a report count in the budget of their namespace. SaveReport writes the bytes of their columns. Reports from before
-- have an estimate until they are replaced.
ALTER TABLE reports ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE reports SET bytes = 320 * present;
