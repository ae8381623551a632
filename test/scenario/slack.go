package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// SlackHost is the host of the stand-in for Slack.
const SlackHost = "slack." + InfraNamespace + ".svc"

// webhookPath returns the path of a channel's webhook. A channel has the name of the namespace whose Scanner posts to it.
func webhookPath(channel string) string { return "/services/T0DEMO/B0DEMO/" + channel }

// WebhookURL returns the URL of a channel's webhook.
func WebhookURL(channel string) string { return "https://" + SlackHost + webhookPath(channel) }

func (e *Environment) startSlack(ctx context.Context) (string, error) {
	image, err := e.loadImage(images.Slack)
	if err != nil {
		return "", err
	}
	reference, err := e.Push(ctx, images.Slack, image)
	if err != nil {
		return "", err
	}
	certificate, err := newServing(SlackHost, time.Now())
	if err != nil {
		return "", err
	}
	e.SlackAuthority = certificate.authority
	err = e.Apply(ctx, "slack.yaml", map[string]string{
		"Namespace": InfraNamespace, "Image": reference,
		"Certificate": base64.StdEncoding.EncodeToString(certificate.certificate),
		"Key":         base64.StdEncoding.EncodeToString(certificate.key),
	})
	if err != nil {
		return "", err
	}
	return "https://" + SlackHost, e.WaitForRollout(ctx, InfraNamespace, "deployment/slack")
}

// Messages returns the messages that a channel has got by its webhook or from an app, oldest first. The name of an app's channel begins with #.
func (e *Environment) Messages(ctx context.Context, channel string) ([]Message, error) {
	raw, err := e.Clientset.CoreV1().Services(InfraNamespace).ProxyGet("http", "slack", "control", "messages", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the Slack stand-in for its messages: %w", err)
	}
	var all []standin.Message
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("the Slack stand-in's messages: %w", err)
	}
	all = slices.DeleteFunc(all, func(m standin.Message) bool { return m.Path != webhookPath(channel) && m.Channel != channel })
	messages := make([]Message, 0, len(all))
	for _, m := range all {
		read, err := ReadMessage(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, read)
	}
	return messages, nil
}

// SlackFails makes the stand-in fail for its next messages.
func (e *Environment) SlackFails(ctx context.Context, failure standin.Failure) error {
	body, err := json.Marshal(failure)
	if err != nil {
		return err
	}
	return e.Clientset.CoreV1().RESTClient().Post().Namespace(InfraNamespace).Resource("services").Name("http:slack:control").
		SubResource("proxy").Suffix("control").Body(body).Do(ctx).Error()
}
