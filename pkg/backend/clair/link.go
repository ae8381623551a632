package clair

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
)

// linkKey is what Scanners may say differently about one Clair. Without a Secret the namespace does not matter.
type linkKey struct{ namespace, secret string }

func keyOf(scanner *v1alpha1.Scanner) linkKey {
	if ref := scanner.Spec.Backend.Clair.AuthSecretRef; ref != nil {
		return linkKey{namespace: scanner.Namespace, secret: ref.Name}
	}
	return linkKey{}
}

// outage is why Clair cannot be asked. The zero value is that of one that can, or was not asked yet.
type outage struct {
	failure *backend.Failure
	since   time.Time
	// failures is how often in a row there was none of use.
	failures int
	// next is when it is to be asked again.
	next time.Time
}

// note adds a failure, after which Clair is left alone for longer each time.
func (o *outage) note(i *instance, err error) {
	now := i.Clock.Now()
	if o.since.IsZero() {
		o.since = now
	}
	o.failures++
	o.next = now.Add(i.backOff(o.failures))
	said := fmt.Sprintf("%s (since %s)", err, o.since.UTC().Format(time.RFC3339))
	if o.failure == nil || withoutNumbers(o.failure.Message) != withoutNumbers(said) { // conditions change for news only
		o.failure = &backend.Failure{Reason: ReasonUnavailable, Message: said}
	}
}

// link is a Clair with the settings of one Scanner or several. What Clair answers over it is about these only: what it
// is asked depends on what stands in the Scanner's Secret.
type link struct {
	instance *instance
	key      linkKey
	client   *api.Client
	// unusable is why the settings cannot be used at all.
	unusable *backend.Failure
	// checked says that Clair was asked with these settings.
	checked bool
	outage
}

// linkFor returns the link for these settings. The caller holds mu.
func (i *instance) linkFor(key linkKey) *link {
	if l := i.links[key]; l != nil {
		return l
	}
	l := &link{instance: i, key: key}
	options := api.Options{URL: i.url, CABundle: i.authorities, IndexTimeout: i.Config.Clair.IndexTimeout.Duration, Readings: i.readings, Network: i.network, Clock: i.Clock}
	if key.secret != "" {
		options.Auth = func(ctx context.Context) (api.Auth, error) { return i.auth(ctx, key.namespace, key.secret) }
	}
	client, err := api.New(options)
	if err != nil {
		l.unusable = &backend.Failure{Reason: ReasonSettings, Message: "clair.instances of the operator's configuration: " + err.Error()}
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
	case l.instance.way.failure != nil: // any answer would have ended it
		return l.instance.way.failure
	case l.failure != nil:
		return l.failure
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
	l.checked, l.outage = true, outage{next: i.Clock.Now().Add(i.around(i.Config.Clair.PollInterval.Duration))}
	i.way = outage{}
	i.worked = l
	return news
}

// noteFailed notes why Clair, asked for what it always has, did not give it. It returns whether that is news.
func (i *instance) noteFailed(l *link, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, now := l.trouble(), i.Clock.Now()
	var answer *api.Error
	answered := errors.As(err, &answer) && answer.Status != 0
	switch own := i.ownFailure(l, err); {
	case own != nil:
		l.checked, l.outage = true, outage{failure: own, next: now.Add(i.around(i.Config.Clair.PollInterval.Duration))}
	case answered:
		l.checked = true
		l.note(i, err)
	default:
		i.way.note(i, err)
		l.failures++
		l.next = now.Add(i.backOff(l.failures))
	}
	if answered {
		i.way = outage{}
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

// probe finds out whether Clair and its databases work, of which indexer and matcher may have one each: with its database
// away, the indexer says of all images that it does not know them, and nothing of that is to be believed.
func (i *instance) probe(ctx context.Context, l *link) error {
	if trouble := i.troubleOf(l); trouble != nil {
		return trouble
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err := l.client.Delete(ctx, noImage()) // the database has to be searched for it
	if err == nil {
		_, err = l.client.UpdateOperations(ctx, api.Vulnerabilities, "")
	}
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		i.tell(ctx, l, i.noteFailed(l, err))
	}
	return err
}

// noImage is a digest that no image has.
func noImage() claircore.Digest {
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // it never fails
	return claircore.MustParseDigest("sha256:" + hex.EncodeToString(random))
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
