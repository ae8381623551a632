-- +goose Up

-- Which reports have changed since a revision. The namespaces of their images need no mark in namespace_changes then.
CREATE INDEX reports_by_revision ON reports (store_revision);
