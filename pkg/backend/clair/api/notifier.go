package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/quay/claircore"
)

// pathNotification of the API (clair, httptransport/server.go).
const pathNotification = "/notifier/api/v1/notification/"

// Bounds of one notification: the first run of an updater affects every manifest with one of its vulnerabilities.
const (
	notificationsPerPage = 500
	maxNotificationPages = 1000
	// maxNotificationAnswers bounds the size of all pages together, in answers of the maximum size.
	maxNotificationAnswers = 16
)

// Reason is what happened to a vulnerability of a manifest. In Clair's summaries, which are its default, the reason may be wrong when one
// vulnerability was added and another one removed.
type Reason string

// Reasons that Clair defines (clair, notifier/notification.go).
const (
	ReasonAdded   Reason = "added"
	ReasonRemoved Reason = "removed"
	ReasonChanged Reason = "changed"
)

// Notification means that the vulnerabilities of a manifest have changed.
type Notification struct {
	Manifest claircore.Digest `json:"manifest"`
	Reason   Reason           `json:"reason"`
}

// notificationPage is one answer. Its details of vulnerabilities are not decoded.
type notificationPage struct {
	Page struct {
		Next string `json:"next"`
	} `json:"page"`
	Notifications []Notification `json:"notifications"`
}

// Notifications reads all pages of a notification, one at a time. A manifest may occur many times. The last element may be an error, which
// ends the sequence. An ID that Clair does not know gives an empty sequence.
func (c *Client) Notifications(ctx context.Context, id uuid.UUID) iter.Seq2[Notification, error] {
	return func(yield func(Notification, error) bool) {
		next, read, limit := "", int64(0), maxNotificationAnswers*c.options.MaxAnswerBytes
		for range maxNotificationPages {
			page, size, err := c.notificationPage(ctx, id, next)
			if read += size; err == nil && read > limit {
				err = c.failure(TooLarge, 0, fmt.Sprintf("notification %s takes more than %d bytes", id, limit))
			}
			if err != nil {
				yield(Notification{}, err)
				return
			}
			for _, notification := range page.Notifications {
				if !yield(notification, nil) {
					return
				}
			}
			if next = page.Page.Next; next == "" {
				return
			}
		}
		yield(Notification{}, c.failure(TooLarge, 0, fmt.Sprintf("notification %s has more than %d pages", id, maxNotificationPages)))
	}
}

// notificationPage reads one page; next is the page that the previous one named. It also returns the size of the answer in bytes.
func (c *Client) notificationPage(ctx context.Context, id uuid.UUID, next string) (*notificationPage, int64, error) {
	// Every request needs the page size.
	query := url.Values{"page_size": {strconv.Itoa(notificationsPerPage)}}
	if next != "" {
		query.Set("next", next)
	}
	got, err := c.do(ctx, call{
		method: http.MethodGet, path: pathNotification + id.String() + "?" + query.Encode(),
		limit: c.options.MaxAnswerBytes, accept: []int{http.StatusOK},
	})
	if err != nil {
		return nil, 0, err
	}
	var page notificationPage
	if err := c.decode(got, &page); err != nil {
		return nil, 0, err
	}
	if err := page.check(); err != nil {
		return nil, 0, c.invalid(got.status, err.Error())
	}
	return &page, int64(len(got.body)), nil
}

func (p *notificationPage) check() error {
	if p.Notifications == nil {
		return errors.New("the answer is no page of notifications")
	}
	for _, notification := range p.Notifications {
		switch notification.Reason {
		case ReasonAdded, ReasonRemoved, ReasonChanged:
		default:
			return errors.New("the answer has a notification without a known reason")
		}
		if notification.Manifest.String() == "" {
			return errors.New("the answer has a notification without a manifest")
		}
	}
	if _, err := parseID(p.Page.Next); p.Page.Next != "" && err != nil {
		return errors.New("the answer names a next page that is none")
	}
	return nil
}

// DeleteNotification has Clair delete a notification, after its manifests were processed. A missing notification is no error.
func (c *Client) DeleteNotification(ctx context.Context, id uuid.UUID) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: pathNotification + id.String(), limit: maxSmallBytes, accept: []int{http.StatusOK}})
	var refused *Error
	// Clair answers 500 when it knows no such notification (clair, httptransport/notification_v1.go).
	if errors.As(err, &refused) && refused.Status == http.StatusInternalServerError && strings.Contains(refused.Message, "no receipt exists") {
		return nil
	}
	return err
}

// maxWebhookBytes bounds the body of a webhook, which has some 200 bytes.
const maxWebhookBytes = 8 << 10

// ParseWebhook returns the ID of the notification from the body of a webhook, which Clair posts when there is a notification (clair,
// notifier/callback.go): one JSON object of at most 8 KiB. Unknown fields are ignored, since later versions of Clair may add some. The
// callback, which is the notification's URL, is ignored too, because any sender of a webhook can choose it.
func ParseWebhook(body io.Reader) (uuid.UUID, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxWebhookBytes+1))
	switch {
	case err != nil:
		return uuid.Nil, fmt.Errorf("reading the webhook: %w", err)
	case len(text) > maxWebhookBytes:
		return uuid.Nil, fmt.Errorf("the webhook has more than %d bytes", maxWebhookBytes)
	}
	var document struct {
		NotificationID string `json:"notification_id"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return uuid.Nil, errors.New("the webhook is not one JSON object as Clair sends it")
	}
	id, err := parseID(document.NotificationID)
	if err != nil {
		return uuid.Nil, errors.New("notification_id: must be a UUID")
	}
	return id, nil
}

// parseID accepts only the form of a UUID that Clair writes.
func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err == nil && id.String() != strings.ToLower(text) {
		err = errors.New("not the usual form of a UUID")
	}
	return id, err
}
