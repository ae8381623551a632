package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// APIURL is the address of Slack's Web API.
const APIURL = "https://slack.com/api"

// App posts messages as a Slack app, with chat.postMessage (https://docs.slack.dev/reference/methods/chat.postMessage). It is safe for
// concurrent use.
type App struct {
	client *receiver.Client
	method egress.Target
	direct bool
}

// NewApp returns an App for the Web API at a URL that the administrator has configured, such as APIURL. It posts messages to a person only if direct
// messages are allowed.
func NewApp(network receiver.Network, api string, direct bool) *App {
	return &App{client: receiver.NewClient("Slack", network), method: egress.Trusted(strings.TrimSuffix(api, "/") + "/chat.postMessage"), direct: direct}
}

// noDirectMessages is the outcome for a message to a person where the administrator does not allow that.
var noDirectMessages = announce.Outcome{
	Result: announce.Permanent, Reason: announce.ReasonChannelNotAllowed,
	Message: "the channel is a person or a conversation with one, and direct messages are not allowed: use a channel, or have the administrator set the notifier's " +
		"--slack-direct-messages (Helm: notifier.slackDirectMessages)",
}

// Post sends a message to the receiver's channel, within receiver.Timeout. If the requested thread does not exist any more, the message is in the
// channel itself, and the outcome says so. The outcome does not contain the token.
func (a *App) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	if announce.IsDirect(d.Receiver.Channel) && !a.direct {
		return noDirectMessages
	}
	to.Target = a.method
	outcome, code := a.post(ctx, to, d)
	if d.Thread != "" && slices.Contains(threadErrors, code) {
		// Slack has refused the reply, so it is not in Slack yet.
		d.Thread = ""
		outcome, _ = a.post(ctx, to, d)
	}
	return outcome
}

// chatMessage is the body of chat.postMessage.
type chatMessage struct {
	Channel     string           `json:"channel"`
	ThreadTS    string           `json:"thread_ts,omitempty"`
	Text        string           `json:"text"`
	Parse       string           `json:"parse,omitempty"`
	UnfurlLinks *bool            `json:"unfurl_links,omitempty"`
	UnfurlMedia *bool            `json:"unfurl_media,omitempty"`
	Blocks      *slackapi.Blocks `json:"blocks,omitempty"`
}

// post sends one request. It returns Slack's error code with the outcome; empty if Slack gave none.
func (a *App) post(ctx context.Context, to receiver.Address, d announce.Delivery) (announce.Outcome, string) {
	m := Render(d.Message)
	body, err := json.Marshal(chatMessage{
		Channel: d.Receiver.Channel, ThreadTS: d.Thread,
		Text: m.Text, Parse: m.Parse, UnfurlLinks: m.UnfurlLinks, UnfurlMedia: m.UnfurlMedia, Blocks: m.Blocks,
	})
	if err != nil {
		return cannotEncode, ""
	}
	// slack-go's own client is not used: it discards whether the request was sent, and whether the message is in the thread.
	answer, none := a.client.Post(ctx, to, http.Header{
		"Content-Type": {"application/json; charset=utf-8"}, "Authorization": {"Bearer " + to.Token},
	}, body)
	if none != nil {
		return *none, ""
	}
	return a.outcome(answer, d)
}

// apiAnswer is the part of an answer of chat.postMessage that matters.
type apiAnswer struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	TS      string `json:"ts"`
	Message struct {
		// ThreadTS is set for a reply. Slack posts a reply to a deleted message to the channel, without an error and without this field.
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`
}

var timestampPattern = regexp.MustCompile(`^[0-9]{1,20}\.[0-9]{1,20}$`)

// IsTimestamp reports whether a text can be the timestamp of a message in Slack.
func IsTimestamp(text string) bool { return timestampPattern.MatchString(text) }

// outcome converts an answer of Slack's API. Slack refuses with the status 200 and an error code. With a status about a problem of its own, the
// code does not matter.
func (a *App) outcome(response receiver.Answer, d announce.Delivery) (announce.Outcome, string) {
	var answer apiAnswer
	decodeError := json.Unmarshal(response.Body, &answer)
	isOK := response.IsOK()
	switch {
	case response.IsRateLimited(), answer.Error == "ratelimited", answer.Error == "rate_limited":
		return a.client.RateLimited(response.Header), ""
	case isOK && (response.BodyError != nil || decodeError != nil || !answer.OK && answer.Error == ""):
		return a.client.Foreign(response), ""
	case isOK && answer.OK:
		outcome := announce.Outcome{Result: announce.Delivered}
		if IsTimestamp(answer.TS) {
			outcome.Timestamp, outcome.InThread = answer.TS, d.Thread != "" && answer.Message.ThreadTS != ""
		}
		return outcome, ""
	case answer.Error != "" && !receiver.IsTemporary(response.Status):
		return refused(answer.Error, d.Receiver.Channel), answer.Error
	}
	return a.client.Outcome(response, receiver.Word([]byte(answer.Error)), "is the notifier's --slack-api-url the address of Slack's API?"), ""
}

// threadErrors are Slack's codes for a reply that cannot be sent, though a message to the channel can.
var threadErrors = []string{
	"thread_not_found", "invalid_thread_ts", "message_not_found", "cannot_reply_to_message",
	"restricted_action_non_threadable_channel", "restricted_action_thread_locked",
}

// temporaryErrors are Slack's codes for problems of its own, which end without the user.
var temporaryErrors = []string{
	"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "org_login_required", "message_limit_exceeded",
}

// Advice for the user, by groups of Slack's error codes.
const (
	newToken  = "put the bot token of the Slack app (xoxb-…, under OAuth & Permissions) into the Secret"
	useScope  = "give the Slack app the bot scope chat:write, install it again, and put its bot token into the Secret"
	askAdmins = "a setting of the workspace or the channel forbids it: let the app post there, or use another channel"
	reportIt  = "this is an error of the operator: please report it"
)

// adviceForCode tells the user what to do about an error code. %s is the channel.
var adviceForCode = map[string]string{
	"channel_not_found": "the app does not find the channel %s: check its ID or name, and invite the app there (/invite @…). A private channel needs its ID",
	"not_in_channel":    "the app is not a member of the channel %s: invite it there (/invite @…)",
	"is_archived":       "the channel %s is archived: unarchive it, or use another one",

	"messages_tab_disabled": "the app takes part in no conversations with persons: turn on the Messages Tab under App Home of the app, or use a channel",

	"invalid_auth": newToken, "not_authed": newToken, "token_revoked": newToken, "token_expired": newToken, "account_inactive": newToken,
	"not_allowed_token_type": newToken,
	"missing_scope":          useScope, "no_permission": useScope,

	"restricted_action": askAdmins, "restricted_action_read_only_channel": askAdmins, "restricted_action_thread_only_channel": askAdmins,
	"ekm_access_denied": askAdmins, "access_denied": askAdmins, "accesslimited": askAdmins, "enterprise_is_restricted": askAdmins,
	"team_access_not_granted": askAdmins,

	"msg_too_long": reportIt, "msg_blocks_too_long": reportIt, "invalid_blocks": reportIt, "invalid_blocks_format": reportIt, "no_text": reportIt,
	"invalid_arguments": reportIt, "invalid_json": reportIt,
}

// refused converts an error code (https://docs.slack.dev/reference/methods/chat.postMessage#errors). An unknown one needs the user.
func refused(code, channel string) announce.Outcome {
	if slices.Contains(temporaryErrors, code) {
		return announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed, Message: "Slack answers " + code}
	}
	message := "Slack refuses the message"
	if receiver.IsWord(code) {
		message = "Slack answers " + code
	}
	advice := adviceForCode[code]
	if strings.Contains(advice, "%s") {
		advice = fmt.Sprintf(advice, channel)
	}
	if advice != "" {
		message += "; " + advice
	}
	return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: message}
}
