package restapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
)

// PathEvents is the path of the streams of events. Their requests last for as long as the streams do.
const PathEvents = "/api/v1/events"

// operationEvents is the operation at PathEvents.
const operationEvents = "watchEvents"

// busyRetry is when a client without a stream should ask again. It loads again in intervals meanwhile.
const busyRetry = time.Minute

// WatchEvents implements restv1.ServerInterface. Generated code cannot serve a stream.
func (h handlers) WatchEvents(w http.ResponseWriter, r *http.Request, params restv1.WatchEventsParams) {
	if err := h.api.serveEvents(w, r, params); err != nil {
		h.api.writeError(w, r, err)
	}
}

// WatchEvents implements restv1.StrictServerInterface. It is never called.
func (a operations) WatchEvents(context.Context, restv1.WatchEventsRequestObject) (restv1.WatchEventsResponseObject, error) {
	return nil, errors.New("streams of events are served by handlers")
}

func (a *API) serveEvents(w http.ResponseWriter, r *http.Request, params restv1.WatchEventsParams) error {
	if err := a.checkStreamOrigin(r); err != nil {
		return err
	}
	c, namespace := callerOf(r.Context()), ptr.Deref(params.Namespace, "")
	if namespace != "" {
		if err := a.authorizer.requireAccess(r.Context(), c.user, verbList, resourceImageScans, namespace, ""); err != nil {
			return err
		}
	}
	release, err := a.Events.Acquire(kubeauth.TenantOf(c.user.Username), c.user.Username)
	switch {
	case errors.Is(err, events.ErrTooManyOfUser), errors.Is(err, events.ErrTooManyOfTenant):
		return tooManyRequests(busyRetry, err.Error())
	case err != nil:
		refused := unavailable(err.Error())
		refused.retryAfter = busyRetry
		return refused
	}
	defer release()
	return a.Events.Serve(w, r, events.Stream{
		Namespace: namespace, Since: ptr.Deref(params.LastEventID, ptr.Deref(params.Since, "")), Ends: expirationOf(c.token),
		Allowed: func(ctx context.Context, change events.Change) (bool, error) { return a.mayKnow(ctx, c, change) },
		Check:   func(ctx context.Context) error { return a.checkStreamCaller(ctx, c) },
	})
}

// checkStreamCaller returns events.ErrUnauthorized if a caller's session has ended or its token is not accepted any more: its streams end then.
func (a *API) checkStreamCaller(ctx context.Context, c *caller) error {
	if c.cookie {
		if _, found, err := a.sessions.opened(ctx, c.sealed); err != nil || !found {
			return cmp.Or(err, error(events.ErrUnauthorized))
		}
	}
	_, err := a.tokens.Identify(ctx, c.address, c.token)
	if errors.Is(err, kubeauth.ErrRefused) {
		return events.ErrUnauthorized
	}
	return err
}

// checkStreamOrigin refuses streams that a page of another origin opens. Browsers let any page open a WebSocket to any host, so the request is
// judged as one that writes.
func (a *API) checkStreamOrigin(r *http.Request) error {
	judged := r.Clone(r.Context())
	judged.Method = http.MethodPost
	if a.crossOrigin.Check(judged) != nil {
		return foreignOrigin()
	}
	return nil
}

// mayKnow reports whether a caller may know that something has changed. A change in no namespace says nothing but its kind. One in a namespace
// shows in the images of the namespace, so it takes the permission to list them. The Scanner's own page takes that to list Scanners.
func (a *API) mayKnow(ctx context.Context, c *caller, change events.Change) (allowed bool, err error) {
	if change.Namespace == "" {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resources := []string{resourceImageScans}
	if change.Kind == restv1.HintScanner {
		resources = append(resources, resourceScanners)
	}
	for _, resource := range resources {
		for _, namespace := range []string{"", change.Namespace} {
			if allowed, err = a.authorizer.isAllowed(ctx, c.user, verbList, resource, namespace, ""); err != nil || allowed {
				return allowed, err
			}
		}
	}
	return false, nil
}
