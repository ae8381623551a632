-- +goose Up

-- Where a message that announced findings is in the receiver's channel: later changes of these findings are replies to it. message_id is
-- announcements.digest_id. timestamp is the receiver's name of the message in the channel.
CREATE TABLE threads (
    id          INTEGER PRIMARY KEY,
    receiver_id INTEGER NOT NULL REFERENCES receivers (id) ON DELETE CASCADE,
    message_id  TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    timestamp   TEXT    NOT NULL,
    UNIQUE (receiver_id, message_id)
);
