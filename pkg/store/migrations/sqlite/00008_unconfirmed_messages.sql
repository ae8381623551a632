-- +goose Up
-- 1: the message was sent, and the receiver never answered.
ALTER TABLE messages ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0;
