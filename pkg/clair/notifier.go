package clair

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

// Bounds of one notification: the first update of an updater tells of every manifest that it concerns.
const (
	notificationsPerPage = 500
	maxNotificationPages = 1000
	// maxNotificationAnswers is how many answers of the largest size all pages may take together.
	maxNotificationAnswers = 16
)

// Reason says what happened to a vulnerability of a manifest. In Clair's summaries, which are its default, it may be
// wrong when one vulnerability was added and another one removed.
type Reason string

// The reasons that Clair has (clair, notifier/notification.go).
const (
	ReasonAdded   Reason = "added"
	ReasonRemoved Reason = "removed"
	ReasonChanged Reason = "changed"
)

// Notification says that the vulnerabilities of a manifest are others than before.
type Notification struct {
	Manifest claircore.Digest `json:"manifest"`
	Reason   Reason           `json:"reason"`
}

// notificationPage is one answer; what it tells of vulnerabilities is not read.
type notificationPage struct {
	Page struct {
		Next string `json:"next"`
	} `json:"page"`
	Notifications []Notification `json:"notifications"`
}

// Notifications reads all pages of a notification, one at a time. A manifest may come up many times. The last element
// may be an error, after which there is nothing more. Of an id that Clair does not know, there are none.
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

// notificationPage reads the page that the one before it named, and says how many bytes it took.
func (c *Client) notificationPage(ctx context.Context, id uuid.UUID, next string) (*notificationPage, int64, error) {
	// The size has to be said on every page.
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

// DeleteNotification has Clair forget a notification, once everything in it has been taken care of. One that is not
// there any more is fine.
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

// Webhook is what Clair posts when there is a notification (clair, notifier/callback.go).
type Webhook struct {
	NotificationID uuid.UUID
}

// ParseWebhook reads the body of a webhook: one JSON object of at most 8 KiB with an id. Fields that it does not know
// are left to later versions of Clair. The callback, which says where the notification is, is not read: whoever sends a
// webhook chooses it.
func ParseWebhook(body io.Reader) (*Webhook, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxWebhookBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the webhook: %w", err)
	case len(text) > maxWebhookBytes:
		return nil, fmt.Errorf("the webhook has more than %d bytes", maxWebhookBytes)
	}
	var document struct {
		NotificationID string `json:"notification_id"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, errors.New("the webhook is not one JSON object as Clair sends it")
	}
	id, err := parseID(document.NotificationID)
	if err != nil {
		return nil, errors.New("notification_id: must be a UUID")
	}
	return &Webhook{NotificationID: id}, nil
}

// parseID reads the one form of a UUID that Clair writes.
func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err == nil && id.String() != strings.ToLower(text) {
		err = errors.New("not the usual form of a UUID")
	}
	return id, err
}
