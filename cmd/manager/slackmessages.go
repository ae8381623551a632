package main

import (
	"encoding/json"
	"fmt"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// renderSlack renders a message of the store as the notifier of this version does for Slack.
func renderSlack(message []byte) (rendered restv1.SlackMessage, err error) {
	var m announce.Message
	if err := json.Unmarshal(message, &m); err != nil {
		return rendered, fmt.Errorf("reading a stored message: %w", err)
	}
	made := slack.Render(m)
	rendered.Text = made.Text
	rendered.Blocks, err = json.Marshal(made.Blocks)
	return rendered, err
}
