package clair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
)

// linkKey is what Scanners may say differently about one Clair. Without a Secret the namespace does not matter.
type linkKey struct{ namespace, secret, authorities string }

func keyOf(scanner *v1alpha1.Scanner) linkKey {
	key := linkKey{authorities: scanner.Spec.Backend.Clair.CABundle}
	if ref := scanner.Spec.Backend.Clair.AuthSecretRef; ref != nil {
		key.namespace, key.secret = scanner.Namespace, ref.Name
	}
	return key
}

// way leads to a Clair, with the authorities that vouch for it. Whether it works is the same for all who go it.
type way struct {
	// failure is why Clair cannot be asked on this way; nil if it can, or was not asked yet.
	failure  *backend.Failure
	since    time.Time
	failures int
	// next is when it may be asked again, if it failed.
	next time.Time
}

// link is a Clair with the settings of one Scanner or several. What is wrong with it is wrong for these only.
type link struct {
	instance *instance
	key      linkKey
	way      *way
	client   *api.Client
	// unusable is why the settings cannot be used at all.
	unusable *backend.Failure
	// checked says that Clair was asked with these settings. failure is why it did not let them in.
	checked bool
	failure *backend.Failure
	// next is when the settings are checked again.
	next time.Time
}

// linkFor returns the link for these settings. The caller holds mu.
func (i *instance) linkFor(key linkKey) *link {
	if l := i.links[key]; l != nil {
		return l
	}
	l := &link{instance: i, key: key, way: i.ways[key.authorities]}
	if l.way == nil {
		l.way = &way{}
		i.ways[key.authorities] = l.way
	}
	options := api.Options{URL: i.url, CABundle: key.authorities, IndexTimeout: i.Config.Clair.IndexTimeout.Duration, Network: i.network, Clock: i.Clock}
	if key.secret != "" {
		options.Auth = func(ctx context.Context) (api.Auth, error) { return i.auth(ctx, key.namespace, key.secret) }
	}
	client, err := api.New(options)
	if err != nil {
		l.unusable = &backend.Failure{Reason: ReasonSettings, Message: "spec.backend.clair." + err.Error()}
	}
	l.client = client
	i.links[key] = l
	return l
}

// trouble is why nothing can be asked over this link now; nil if it can. The caller holds the instance's mu.
func (l *link) trouble() *backend.Failure {
	switch {
	case l.unusable != nil:
		return l.unusable
	case l.failure != nil:
		return l.failure
	case l.way.failure != nil:
		return l.way.failure
	}
	return nil
}

// troubleOf is the same for those who do not hold mu.
func (i *instance) troubleOf(l *link) *backend.Failure {
	i.mu.Lock()
	defer i.mu.Unlock()
	return l.trouble()
}

// noteWorked notes that Clair gave what it was asked for. It returns whether that is news.
func (i *instance) noteWorked(l *link) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	news := !l.checked || l.trouble() != nil
	l.checked, l.failure = true, nil
	*l.way = way{}
	l.next = i.Clock.Now().Add(i.around(i.Config.Clair.PollInterval.Duration))
	i.worked = l
	return news
}

// noteFailed notes why Clair, asked for what it always has, did not give it. It returns whether that is news.
func (i *instance) noteFailed(l *link, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, now := l.trouble(), i.Clock.Now()
	if own := i.ownFailure(l, err); own != nil {
		l.checked, l.failure = true, own
		l.next = now.Add(i.around(i.Config.Clair.PollInterval.Duration))
		if api.KindOf(err) == api.Unauthorized {
			*l.way = way{} // there was an answer
		}
	} else {
		p := l.way
		if p.failures++; p.since.IsZero() {
			p.since = now
		}
		p.next = now.Add(i.backOff(p.failures))
		said := fmt.Sprintf("%s (since %s)", err, p.since.UTC().Format(time.RFC3339))
		if p.failure == nil || withoutNumbers(p.failure.Message) != withoutNumbers(said) { // conditions change for news only
			p.failure = &backend.Failure{Reason: ReasonUnavailable, Message: said}
		}
	}
	after := l.trouble()
	return before == nil || before.Reason != after.Reason || withoutNumbers(before.Message) != withoutNumbers(after.Message)
}

// withoutNumbers is what stays the same of a message when only ports and times change.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// ownFailure is what says something about the settings only; nil for any other error.
func (i *instance) ownFailure(l *link, err error) *backend.Failure {
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		return failure
	case api.KindOf(err) == api.Unauthorized && l.key.secret == "":
		return &backend.Failure{Reason: ReasonUnauthorized, Message: fmt.Sprintf("spec.backend.clair.authSecretRef is not set: %s", err)}
	case api.KindOf(err) == api.Unauthorized:
		return &backend.Failure{Reason: ReasonUnauthorized, Message: fmt.Sprintf("spec.backend.clair.authSecretRef (Secret %s): %s", l.key.secret, err)}
	}
	return nil
}

// probe finds out whether Clair and its database work: with the database away, Clair says of all images that it does not
// know them. The answer to the second question is never remembered by Clair; the first goes to its indexer, which may be
// another process and which the rest of it needs for reports.
func (i *instance) probe(ctx context.Context, l *link) error {
	if trouble := i.troubleOf(l); trouble != nil {
		return trouble
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	_, err := l.client.IndexState(ctx)
	if err == nil {
		_, err = l.client.UpdateOperations(ctx, api.Vulnerabilities, "")
	}
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		i.tell(ctx, l, i.noteFailed(l, err))
	}
	return err
}

// tell has Scanners show how their Clair is, if that has changed.
func (i *instance) tell(ctx context.Context, l *link, news bool) {
	if !news {
		return
	}
	if trouble := i.troubleOf(l); trouble != nil {
		i.Log.Info("Clair cannot be asked", "clair", i.url, "namespace", l.key.namespace, "secret", l.key.secret, "reason", trouble.Reason, "cause", trouble.Message)
	} else {
		i.Log.Info("Clair answers", "clair", i.url, "namespace", l.key.namespace, "secret", l.key.secret)
		kick(i.indexing)
		kick(i.reading)
	}
	kick(i.polling)
	i.DataChanged(ctx)
}
