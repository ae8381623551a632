package clair

import (
	"cmp"
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
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

// linkKey identifies the settings that Scanners may have for one Clair. It has a namespace only with a Secret.
type linkKey struct{ namespace, secret string }

// keyOf returns the settings of a scanner. The Secret of a ClusterScanner is in the operator's namespace.
func (i *instance) keyOf(scanner v1alpha1.GenericScanner) linkKey {
	if ref := scanner.Settings().Backend.Clair.AuthSecretRef; ref != nil {
		return linkKey{namespace: cmp.Or(scanner.GetNamespace(), i.Namespace), secret: ref.Name}
	}
	return linkKey{}
}

// outage is why a Clair cannot be used. The zero value means that it works or was not contacted yet.
type outage struct {
	failure *backend.Failure
	since   time.Time
	// failures counts failures in a row.
	failures int
	// next is when to contact Clair again.
	next time.Time
}

// record records a failure and increases the backoff.
func (o *outage) record(i *instance, err error) {
	now := i.Clock.Now()
	if o.since.IsZero() {
		o.since = now
	}
	o.failures++
	o.next = now.Add(i.backoff(o.failures))
	message := fmt.Sprintf("%s (since %s)", err, o.since.UTC().Format(time.RFC3339))
	if o.failure == nil || withoutNumbers(o.failure.Message) != withoutNumbers(message) { // a condition changes only if more than numbers changed
		o.failure = &backend.Failure{Reason: backend.ReasonClairUnavailable, Message: message}
	}
}

// link is a connection to a Clair with the settings of one or more Scanners. Its errors concern only these settings, because answers
// depend on the key in the Scanner's Secret.
type link struct {
	instance *instance
	key      linkKey
	client   *api.Client
	// settingsFailure is why the settings cannot be used at all; nil if they can.
	settingsFailure *backend.Failure
	// checked means that the settings were tried: a request succeeded, or failed for another reason than the connection.
	checked bool
	outage
}

// linkFor returns the link for these settings, and creates it if needed. The caller holds mu.
func (i *instance) linkFor(key linkKey) *link {
	if l := i.links[key]; l != nil {
		return l
	}
	l := &link{instance: i, key: key}
	options := api.Options{URL: i.url, CABundle: i.caBundle, IndexTimeout: i.Config.Clair.IndexTimeout.Duration, ReportSlots: i.reportSlots, Network: i.network, Clock: i.Clock}
	if key.secret != "" {
		options.Auth = func(ctx context.Context) (api.Auth, error) { return i.auth(ctx, key.namespace, key.secret) }
	}
	client, err := api.New(options)
	if err != nil {
		l.settingsFailure = &backend.Failure{Reason: backend.ReasonClairSettings, Message: "clair.instances of the operator's configuration: " + err.Error()}
	}
	l.client = client
	i.links[key] = l
	return l
}

// problem returns why this link cannot be used now; nil if it can. The caller holds the instance's mu.
func (l *link) problem() *backend.Failure {
	switch {
	case l.settingsFailure != nil:
		return l.settingsFailure
	case l.instance.connection.failure != nil: // any answer would have cleared it
		return l.instance.connection.failure
	case l.failure != nil:
		return l.failure
	}
	return nil
}

// isWorking reports whether a request over this link has succeeded, and none has failed since. The caller holds the instance's mu.
func (l *link) isWorking() bool { return l.checked && l.problem() == nil }

// problemOf is link.problem for callers that do not hold mu.
func (i *instance) problemOf(l *link) *backend.Failure {
	i.mu.Lock()
	defer i.mu.Unlock()
	return l.problem()
}

// recordSuccess records that Clair answered a request with success.
func (i *instance) recordSuccess(ctx context.Context, l *link) {
	i.mu.Lock()
	wasWorking := l.isWorking()
	l.checked, l.outage = true, outage{next: i.nextPoll()}
	i.connection = outage{}
	i.lastWorking = l
	i.mu.Unlock()
	if !wasWorking {
		i.Log.Info("Clair answers", "clair", i.url, "namespace", l.key.namespace, "secret", l.key.secret)
		wake(i.indexing)
		wake(i.reading)
		wake(i.polling)
		i.DataChanged(ctx)
	}
}

// recordFailure records a failed request that a healthy Clair would have answered.
func (i *instance) recordFailure(ctx context.Context, l *link, err error) {
	i.mu.Lock()
	before := l.problem()
	i.setOutage(l, err)
	after := l.problem()
	i.mu.Unlock()
	if before == nil || before.Reason != after.Reason || withoutNumbers(before.Message) != withoutNumbers(after.Message) {
		i.Log.Info("Clair cannot be asked", "clair", i.url, "namespace", l.key.namespace, "secret", l.key.secret, "reason", after.Reason, "cause", after.Message)
		wake(i.polling)
		i.DataChanged(ctx)
	}
}

// nextPoll returns the time of the next poll over a link with an answer.
func (i *instance) nextPoll() time.Time {
	return i.Clock.Now().Add(i.jitter(i.Config.Clair.PollInterval.Duration))
}

// setOutage records a failed request as an outage of the link, or of the connection that all links share. The caller holds mu.
func (i *instance) setOutage(l *link, err error) {
	var answer *api.Error
	answered := errors.As(err, &answer) && answer.Status != 0
	switch own := i.linkFailure(l, err); {
	case own != nil:
		l.checked, l.outage = true, outage{failure: own, next: i.nextPoll()}
	case answered:
		l.checked = true
		l.record(i, err)
	default:
		i.connection.record(i, err)
		l.failures++
		l.next = i.Clock.Now().Add(i.backoff(l.failures))
	}
	if answered {
		i.connection = outage{}
	}
}

// withoutNumbers removes digits, so that messages that differ only in ports and times compare equal.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// linkFailure returns the failure if an error concerns only the link's settings; nil for any other error.
func (i *instance) linkFailure(l *link, err error) *backend.Failure {
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		return failure
	case api.KindOf(err) == api.Unauthorized && l.key.secret == "":
		return &backend.Failure{Reason: backend.ReasonClairUnauthorized, Message: fmt.Sprintf("spec.backend.clair.authSecretRef is not set: %s", err)}
	case api.KindOf(err) == api.Unauthorized:
		return &backend.Failure{Reason: backend.ReasonClairUnauthorized, Message: fmt.Sprintf("spec.backend.clair.authSecretRef (Secret %s): %s", l.key.secret, err)}
	}
	return nil
}

// probe checks that Clair and its databases work. The indexer and the matcher may have one database each. Without its database, the
// indexer reports every image as unknown, so such answers must not be trusted.
func (i *instance) probe(ctx context.Context, l *link) error {
	if trouble := i.problemOf(l); trouble != nil {
		return trouble
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err := l.client.Delete(ctx, randomDigest()) // this makes the indexer search its database
	if err == nil {
		_, err = l.client.UpdateOperations(ctx, api.Vulnerabilities, "")
	}
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		i.recordFailure(ctx, l, err)
	}
	return err
}

// randomDigest returns a random digest, which no image has.
func randomDigest() claircore.Digest {
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // never fails
	return claircore.MustParseDigest("sha256:" + hex.EncodeToString(random))
}
