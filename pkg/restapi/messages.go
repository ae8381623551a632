package restapi

import (
	"context"
	"encoding/json"
	"strings"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// messagePosition is the position of a page of messages: the ID that all its messages are before, and the store that the ID refers to.
type messagePosition struct {
	Store  string `json:"store"`
	Before int64  `json:"before"`
}

// maxMessages bounds a page of messages, since a message is much larger than other items.
const maxMessages = 50

// ListMessages implements restv1.StrictServerInterface.
func (a operations) ListMessages(ctx context.Context, r restv1.ListMessagesRequestObject) (restv1.ListMessagesResponseObject, error) {
	var scanner v1alpha1.Scanner
	if err := a.getObject(ctx, resourceScanners, r.Namespace, r.Name, &scanner); err != nil {
		return nil, err
	}
	list, err := a.messagesOf(ctx, &scanner, r.Params)
	if err != nil {
		return nil, err
	}
	return restv1.ListMessages200JSONResponse(list), nil
}

// ListClusterScannerMessages implements restv1.StrictServerInterface.
func (a operations) ListClusterScannerMessages(
	ctx context.Context, r restv1.ListClusterScannerMessagesRequestObject,
) (restv1.ListClusterScannerMessagesResponseObject, error) {
	var scanner v1alpha1.ClusterScanner
	if err := a.getObject(ctx, resourceClusterScanners, "", r.Name, &scanner); err != nil {
		return nil, err
	}
	list, err := a.messagesOf(ctx, &scanner, restv1.ListMessagesParams(r.Params))
	if err != nil {
		return nil, err
	}
	return restv1.ListClusterScannerMessages200JSONResponse(list), nil
}

// messagesOf returns a page of the messages of a scanner.
func (a operations) messagesOf(ctx context.Context, scanner v1alpha1.GenericScanner, params restv1.ListMessagesParams) (list restv1.MessageList, err error) {
	limit := min(limitOf(params.Limit), maxMessages)
	place := messagePosition{Store: a.Store.ID()}
	if err := decodeContinue(ctx, params.Continue, &place); err != nil {
		return list, err
	}
	if place.Store != a.Store.ID() {
		return list, resultsReplaced()
	}
	var messages []store.Message
	err = a.query(ctx, func(ctx context.Context) (err error) {
		// One more message shows whether there is a next page.
		messages, err = a.Store.Messages(ctx, string(scanner.GetUID()), ptr.Deref(params.Receiver, ""), place.Before, limit+1)
		return err
	})
	if err != nil {
		return list, err
	}
	list.Items = []restv1.Message{}
	for _, m := range messages[:min(len(messages), limit)] {
		receiver, channel, _ := strings.Cut(m.Receiver, "/")
		item := restv1.Message{
			ID: m.ID, Receiver: receiver, Channel: channel, Kind: m.Kind, Title: m.Title, Findings: m.Findings, DeliveryTime: m.At.UTC(), Unconfirmed: m.Unconfirmed,
			Message: json.RawMessage(m.Body),
		}
		if rendered, err := a.RenderSlack(m.Body); err == nil {
			item.Slack = &rendered
		}
		list.Items = append(list.Items, item)
	}
	if len(messages) > limit {
		list.Continue, err = encodeContinue(ctx, messagePosition{Store: a.Store.ID(), Before: messages[limit-1].ID})
	}
	return list, err
}
