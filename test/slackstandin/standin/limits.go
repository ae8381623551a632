// Package standin simulates Slack's incoming webhooks, and chat.postMessage for apps, for demos and tests.
//
// It accepts only what Slack documents as valid and rejects the rest with Slack's error codes. It shares no code with the notifier,
// whose messages it checks.
package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// Slack's published limits (https://docs.slack.dev/reference/block-kit/blocks and the pages of each block), in UTF-16 code units, as
// JavaScript counts characters.
const (
	maxBlocks          = 50
	maxText            = 40_000
	maxSectionText     = 3000
	maxHeaderText      = 150
	maxContextElements = 10
	maxFields          = 10
	maxFieldText       = 2000
	maxBlockID         = 255
	// maxBlocksText is not documented. Slack was observed to reject longer blocks with msg_blocks_too_long.
	maxBlocksText = 13_200
)

// fieldsOf lists the allowed fields of each supported block type. Slack rejects other fields.
var fieldsOf = map[string][]string{
	"header":  {"type", "block_id", "text"},
	"section": {"type", "block_id", "text", "fields", "expand"},
	"context": {"type", "block_id", "elements"},
	"divider": {"type", "block_id"},
}

// Violation is one problem of a message.
type Violation struct {
	// Error is the code with which Slack would reject the message; empty for a message that Slack accepts but the project does not want.
	Error string `json:"error,omitempty"`
	// Detail describes the problem.
	Detail string `json:"detail"`
}

// payload holds the fields of a message that are checked.
type payload struct {
	Text        string            `json:"text"`
	Parse       string            `json:"parse"`
	LinkNames   any               `json:"link_names"`
	Attachments []json.RawMessage `json:"attachments"`
	Blocks      []json.RawMessage `json:"blocks"`
}

type block struct {
	Type     string `json:"type"`
	BlockID  string `json:"block_id"`
	Text     *text  `json:"text"`
	Fields   []text `json:"fields"`
	Elements []text `json:"elements"`
	Expand   bool   `json:"expand"`
}

// text is a text object (https://docs.slack.dev/reference/block-kit/composition-objects/text-object).
type text struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Emoji    *bool  `json:"emoji"`
	Verbatim *bool  `json:"verbatim"`
}

// Check returns all violations of a message; none for a valid one.
func Check(body []byte) []Violation {
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return []Violation{{Error: "invalid_payload", Detail: err.Error()}}
	}
	c := &checker{}
	if p.Text == "" && len(p.Blocks) == 0 && len(p.Attachments) == 0 {
		c.refuse("no_text", "neither text nor blocks")
	}
	if p.Text == "" && len(p.Blocks) > 0 {
		c.warn("no text beside the blocks: notifications and screen readers have nothing to say")
	}
	if length(p.Text) > maxText {
		c.refuse("msg_too_long", "text has %d characters, at most %d are taken", length(p.Text), maxText)
	}
	if p.Parse == "full" || p.LinkNames != nil && p.LinkNames != false {
		c.warn("plain names in the message would become mentions")
	}
	c.markup("text", p.Text)
	c.blocks(p.Blocks)
	return c.violations
}

// checker collects violations.
type checker struct {
	violations []Violation
	total      int
}

func (c *checker) refuse(word, format string, args ...any) {
	c.violations = append(c.violations, Violation{Error: word, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(format string, args ...any) { c.refuse("", format, args...) }

func (c *checker) blocks(blocks []json.RawMessage) {
	if len(blocks) > maxBlocks {
		c.refuse("invalid_blocks", "%d blocks, at most %d are taken", len(blocks), maxBlocks)
	}
	ids := map[string]bool{}
	for i, raw := range blocks {
		b, err := readBlock(raw)
		where := fmt.Sprintf("block %d (%s)", i+1, b.Type)
		if err != nil {
			c.refuse("invalid_blocks", "%s: %v", where, err)
			continue
		}
		if length(b.BlockID) > maxBlockID {
			c.refuse("invalid_blocks", "%s: block_id has %d characters, at most %d are taken", where, length(b.BlockID), maxBlockID)
		}
		if b.BlockID != "" && ids[b.BlockID] {
			c.refuse("invalid_blocks", "%s: block_id %q is there twice", where, b.BlockID)
		}
		ids[b.BlockID] = true
		c.block(where, b)
	}
	if c.total > maxBlocksText {
		c.refuse("msg_blocks_too_long", "%d characters in all blocks, about %d are taken", c.total, maxBlocksText)
	}
}

// readBlock decodes a block. A field that its type does not have is an error, also in a text object.
func readBlock(raw json.RawMessage) (block, error) {
	var b block
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return b, err
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&b); err != nil {
		return b, err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if known, isKnown := fieldsOf[b.Type]; isKnown && !slices.Contains(known, field) {
			return b, fmt.Errorf("no %s has a field %q", b.Type, field)
		}
	}
	return b, nil
}

func (c *checker) block(where string, b block) {
	switch b.Type {
	case "header":
		c.required(where, b.Text, maxHeaderText)
		if b.Text != nil && b.Text.Type != "plain_text" {
			c.refuse("invalid_blocks", "%s: a header is plain_text", where)
		}
	case "section":
		if b.Text == nil && len(b.Fields) == 0 {
			c.refuse("invalid_blocks", "%s: neither text nor fields", where)
		}
		if b.Text != nil {
			c.text(where, *b.Text, maxSectionText)
		}
		c.several(where, b.Fields, maxFields, maxFieldText)
	case "context":
		if len(b.Elements) == 0 {
			c.refuse("invalid_blocks", "%s: no elements", where)
		}
		c.several(where, b.Elements, maxContextElements, maxSectionText)
	case "divider":
	default:
		c.refuse("invalid_blocks", "%s: this stand-in knows no such type", where)
	}
}

func (c *checker) required(where string, t *text, limit int) {
	if t == nil {
		c.refuse("invalid_blocks", "%s: no text", where)
		return
	}
	c.text(where, *t, limit)
}

func (c *checker) several(where string, texts []text, limit, each int) {
	if len(texts) > limit {
		c.refuse("invalid_blocks", "%s: %d texts, at most %d are taken", where, len(texts), limit)
	}
	for _, t := range texts {
		c.text(where, t, each)
	}
}

func (c *checker) text(where string, t text, limit int) {
	n := length(t.Text)
	c.total += n
	switch {
	case t.Type != "mrkdwn" && t.Type != "plain_text":
		c.refuse("invalid_blocks", "%s: text of type %q", where, t.Type)
	case n == 0:
		c.refuse("invalid_blocks", "%s: empty text", where)
	case n > limit:
		c.refuse("invalid_blocks", "%s: %d characters, at most %d are taken", where, n, limit)
	case t.Type == "mrkdwn" && t.Emoji != nil:
		c.refuse("invalid_blocks", "%s: emoji is for plain_text only", where)
	case t.Type == "plain_text" && t.Verbatim != nil:
		c.refuse("invalid_blocks", "%s: verbatim is for mrkdwn only", where)
	}
	if t.Type != "mrkdwn" {
		return
	}
	c.markup(where, t.Text)
	if t.Verbatim == nil || !*t.Verbatim {
		c.warn("%s: not verbatim, so that plain names may become mentions and links", where)
	}
}

var (
	goodLink   = regexp.MustCompile(`<https://[^<>|\s]+(\|[^<>|\n]+)?>`)
	goodEntity = regexp.MustCompile(`&(amp|lt|gt);`)
)

// markup finds mentions, links with another scheme than https, and unescaped characters
// (https://docs.slack.dev/messaging/formatting-message-text).
func (c *checker) markup(where, s string) {
	rest := goodEntity.ReplaceAllString(goodLink.ReplaceAllStringFunc(s, func(link string) string {
		// Entities in a link must be valid, too.
		return strings.Trim(link, "<>")
	}), "")
	switch {
	case strings.Contains(rest, "<!"), strings.Contains(rest, "<@"), strings.Contains(rest, "<#"):
		c.warn("%s: a mention", where)
	case strings.ContainsAny(rest, "<>"):
		c.warn("%s: < or > that is neither escaped nor part of an https link", where)
	case strings.Contains(rest, "&"):
		c.warn("%s: & that is not escaped", where)
	}
}

// length returns the number of UTF-16 code units, which is JavaScript's length.
func length(s string) int { return len(utf16.Encode([]rune(s))) }
