package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"
)

// ReplacedTool is a version of an engine's tool that another one has replaced.
type ReplacedTool struct {
	// Tool is the tool and its version, and Worker the image in which both of them were.
	Tool, Worker string
	At           time.Time
}

// maxReplacedTools is the number of replaced tools to remember for each engine. More than two builds of one image tag are not expected.
const maxReplacedTools = 4

// replacedToolsKey is the key of an engine's replaced tools in the meta table: a list in JSON.
func replacedToolsKey(engine string) string { return "replaced tools of " + engine }

// ReplacedTools returns the tools of an engine that were replaced, the latest last. Their number is bounded.
func (s *Store) ReplacedTools(ctx context.Context, engine string) ([]ReplacedTool, error) {
	var value string
	err := s.queryRow(ctx, "look up replaced tools of "+engine, selectReplacedTools, replacedToolsKey(engine)).Scan(&value)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return parseReplacedTools(value), err
}

// AddReplacedTool records that a tool of an engine was replaced. Every replica of the manager knows of it then, also after a restart.
func (s *Store) AddReplacedTool(ctx context.Context, engine string, r ReplacedTool) error {
	return s.write(ctx, "record a replaced tool of "+engine, func(ctx context.Context, tx *session) error {
		var before string
		err := tx.QueryRowContext(ctx, selectReplacedTools, replacedToolsKey(engine)).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		replaced := append(parseReplacedTools(before), r)
		value, err := json.Marshal(replaced[max(0, len(replaced)-maxReplacedTools):])
		if err != nil {
			return err
		}
		return saveMetaText(ctx, tx, replacedToolsKey(engine), string(value))
	})
}

const selectReplacedTools = `SELECT value FROM meta WHERE name = ?`

// parseReplacedTools returns nothing for a text that is not a list: all versions are accepted then.
func parseReplacedTools(value string) (replaced []ReplacedTool) {
	if json.Unmarshal([]byte(value), &replaced) != nil {
		return nil
	}
	return replaced
}
