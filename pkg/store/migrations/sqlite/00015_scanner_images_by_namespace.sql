-- +goose Up

-- Whoever asks for the images of one namespace does not go through those of all.
CREATE INDEX scanner_images_by_namespace ON scanner_images (namespace);
