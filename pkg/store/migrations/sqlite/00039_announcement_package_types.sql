-- +goose Up

-- The types of the packages that have the finding, as JSON: NULL while each image has a result about all packages, and until it is recorded.
ALTER TABLE announcements ADD COLUMN package_types TEXT;
