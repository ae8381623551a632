package clairwebhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

const (
	// workTimeout bounds the handling of one notification. The webhook is answered long before, and Clair's retry joins the work.
	workTimeout = 5 * time.Minute
	// requestTimeout bounds one request to Clair, which answers within milliseconds.
	requestTimeout = 20 * time.Second
	// maxPageBytes bounds a page of 500 entries of about a kilobyte each.
	maxPageBytes = 8 << 20
	// handledAge is longer than Clair repeats the webhook of a notification that was answered with 200.
	handledAge = time.Hour
	maxHandled = 10_000
	// maxUnknown bounds the distinct unknown digests that are held in memory while a notification is read. Beyond it, duplicates are
	// counted again.
	maxUnknown = 10_000
)

// task is one notification for a Scanner.
type task struct {
	scanner types.NamespacedName
	uid     types.UID
	id      uuid.UUID
}

// key identifies the task across webhooks.
func (t task) key() string { return string(t.uid) + "/" + t.id.String() }

// handle returns at once for a handled notification, joins work in progress, or starts it. The work continues after the webhook has timed
// out: handling that takes longer than a webhook waits would otherwise never finish. errUnfinished means that it continues.
func (s *Server) handle(ctx context.Context, t task) error {
	if deleted, found := s.handled.Get(t.key()); found && deleted.(bool) {
		return nil
	}
	done := s.flights.DoChan(t.key(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
		defer cancel()
		err := s.markAndDelete(ctx, t)
		if err != nil && !errors.Is(err, errBusy) {
			s.logOncePerMinute(slog.LevelWarn, t.scanner, "notification of Clair not handled yet; Clair sends it again", "notification", t.id, "error", err)
		}
		return nil, err
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return errUnfinished
	}
}

// markAndDelete marks the ImageScans in a notification, then deletes the notification in Clair.
func (s *Server) markAndDelete(ctx context.Context, t task) error {
	leave, err := take(&s.inProgress, t.scanner.Namespace, maxWorkPerNamespace, maxWork)
	if err != nil {
		return err
	}
	defer leave()
	if s.notifications.Take(t.scanner.Namespace) > 0 {
		return errBusy
	}
	end, err := s.readSlots.Acquire(ctx, t.scanner.Namespace)
	if err != nil {
		return err
	}
	defer end()
	scanner, err := s.scanner(ctx, t.scanner)
	if err != nil {
		return err
	}
	if scanner.UID != t.uid {
		return errUnauthorized
	}
	engine, err := s.clairOf(scanner)
	if err != nil {
		return err
	}
	if _, marked := s.handled.Get(t.key()); !marked {
		if err := s.markAll(ctx, t, engine); err != nil {
			return err
		}
		s.handled.Add(t.key(), false, handledAge)
	}
	if err := engine.DeleteNotification(ctx, t.id); err != nil {
		return err
	}
	s.handled.Add(t.key(), true, handledAge)
	return nil
}

// clairOf returns a client for the Scanner's Clair. The operator's configuration has to list its URL, since tenants write Scanners.
func (s *Server) clairOf(scanner *v1alpha1.Scanner) (*api.Client, error) {
	settings, name := scanner.Spec.Backend.Clair, types.NamespacedName{Namespace: scanner.Namespace, Name: scanner.Name}
	address, err := api.CanonicalURL(settings.URL)
	if err != nil {
		return nil, errNotAllowed
	}
	instance, allowed := s.Instances[address]
	if !allowed {
		return nil, errNotAllowed
	}
	options := api.Options{
		URL: address, CABundle: instance.CABundle, Timeout: requestTimeout, MaxAnswerBytes: maxPageBytes, Network: s.network, Clock: s.Clock,
	}
	if ref := settings.AuthSecretRef; ref != nil {
		var once sync.Once
		var auth api.Auth
		var authErr error
		options.Auth = func(ctx context.Context) (api.Auth, error) {
			once.Do(func() {
				if auth, authErr = s.auth(ctx, name, ref.Name); authErr == nil && len(auth.Key) == 0 {
					authErr = fmt.Errorf("secret %s: %s: there is no usable key", ref.Name, api.SecretKey)
				}
			})
			return auth, authErr
		}
	}
	engine, err := api.New(options)
	if err != nil {
		return nil, fmt.Errorf("spec.backend.clair.%w", err)
	}
	return engine, nil
}

// markAll reads all pages of a notification and marks the ImageScans of the images in them.
func (s *Server) markAll(ctx context.Context, t task, engine *api.Client) error {
	var images *index
	concerned, unknown, unknowns := map[string]bool{}, map[string]bool{}, 0
	for notification, err := range engine.Notifications(ctx, t.id) {
		if err != nil {
			return err
		}
		// An empty notification needs no list of ImageScans.
		if images == nil {
			if images, err = s.index(ctx, t); err != nil {
				return err
			}
		}
		digest := notification.Manifest.String()
		switch {
		case len(images.names[digest]) > 0:
			concerned[digest] = true
		case !unknown[digest]:
			unknowns++
			if len(unknown) < maxUnknown {
				unknown[digest] = true
			}
		}
	}
	marked := 0
	for digest := range concerned {
		for _, name := range images.names[digest] {
			if images.marked[name] {
				continue
			}
			if err := s.mark(ctx, t, name); err != nil {
				return err
			}
			images.marked[name] = true
			marked++
			s.Metrics.Marked()
		}
	}
	s.Metrics.Unknown(unknowns)
	s.Log.Info("notification of Clair handled", "namespace", t.scanner.Namespace, "scanner", t.scanner.Name, "notification", t.id,
		"images", len(concerned), "marked", marked, "unknown", unknowns)
	return nil
}
