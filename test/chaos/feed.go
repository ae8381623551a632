package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

const (
	// teams is the number of namespaces, each with a Scanner and a receiver.
	teams = 4
	// maxImages bounds the images of a run: the node has room for 200 pods.
	maxImages = 150
	// imagePause is the time between two changes of images.
	imagePause = 4 * time.Second
	// backlog is the maximum number of a team's images that are not announced yet. With this number, a message still names each finding.
	backlog = 3
	// changeTimeout bounds one change, which is repeated while the API server or the registry is away.
	changeTimeout = 5 * time.Minute
	// groupWait and groupInterval are the delays of the receivers. They are short to get many messages.
	groupWait, groupInterval = time.Second, 2 * time.Second
)

// announced are the changes that the receivers announce.
const announced = "New, FixAvailable, Escalated, Regressed, Fixed"

// image is an image that a pod of a team runs, with a repository of its own.
type image struct {
	namespace, name string
	// since is when the pod was created. fixed is when an image without vulnerabilities was rolled out; zero before.
	since, fixed time.Time
}

// repository returns the repository by which the pod names the image.
func (i image) repository(env *scenario.Environment) string {
	return strings.TrimSuffix(env.Reference("chaos/"+i.name), ":1.0")
}

// vulnerability is one that the images of the feed have, in one package.
type vulnerability struct{ id, pkg string }

// feed changes what runs and what is known about it while faults happen.
type feed struct {
	env     *scenario.Environment
	draws   *rand.Rand
	journal *journal
	// has are the vulnerabilities of each image of the feed that are announced.
	has []vulnerability

	mu     sync.Mutex
	images []image
	// published is when each further directory of advisories was published first.
	published map[string]time.Time
	// further are the directories that were published last.
	further  []string
	messages []ledger.Message
	// prepared is when the first images were announced. summaries is the number of messages about everything that is present.
	prepared  time.Time
	summaries int
	// unscannable are the images of the first team that cannot be scanned, as imagesOf returns them.
	unscannable []string
}

func team(i int) string { return fmt.Sprintf("chaos-%d", i) }

// Images that cannot be scanned, in the first team: one whose pod cannot pull it, and one that was deleted from the registry after its pod had
// pulled it.
const (
	notPulled = "not-pulled"
	deleted   = "deleted"
)

// prepare starts the first images of each team, and waits until they are scanned and announced. No fault happens meanwhile.
func (f *feed) prepare(ctx context.Context) (string, error) {
	for i := range teams {
		if err := f.prepareTeam(ctx, i); err != nil {
			return "", err
		}
	}
	for i := range teams {
		failed := int32(0)
		if i == 0 {
			failed = 2
		}
		if err := f.env.WaitForCoverage(ctx, team(i), 2, failed); err != nil {
			return "", err
		}
	}
	if err := wait.Eventually(ctx, firstMessagesTimeout, wait.Normally, f.firstAnnounced); err != nil {
		return "", err
	}
	f.prepared = time.Now()
	found, err := f.env.Findings(ctx, team(0))
	if err != nil {
		return "", err
	}
	first := firstImage(0).repository(f.env)
	for _, line := range scenario.AnnouncedLines(found) {
		if line.Repository == first {
			f.has = append(f.has, vulnerability{line.ID, line.Package})
		}
	}
	if len(f.has) == 0 {
		return "", errors.New("the images of the feed have no vulnerability that is announced: the run would prove nothing")
	}
	return fmt.Sprintf("%d teams; each image of the feed has %d vulnerabilities to announce", teams, len(f.has)), nil
}

// firstMessagesTimeout bounds the wait for the messages about the first images.
const firstMessagesTimeout = 2 * time.Minute

// firstAnnounced returns an error unless each team has received everything about its first images.
func (f *feed) firstAnnounced(ctx context.Context) error {
	for i := range teams {
		scanner, err := f.env.Scanner(ctx, team(i))
		if err != nil {
			return err
		}
		for _, r := range scanner.Status.Receivers {
			if r.LastDeliveryTime == nil || r.Pending > 0 {
				return fmt.Errorf("%s has not received everything: %+v", team(i), r)
			}
		}
		messages, err := f.env.Messages(ctx, team(i))
		if err != nil {
			return err
		}
		if n := len(messages); n == 0 || time.Since(messages[n-1].Time) < quiet {
			return fmt.Errorf("%s receives messages", team(i))
		}
	}
	return nil
}

// webImage has the package that a later advisory is about. firstImage has what each image of the feed has. They are announced before the faults.
func webImage(team int) image { return image{name: fmt.Sprintf("web-%d", team)} }

func firstImage(team int) image { return image{name: fmt.Sprintf("first-%d", team)} }

func (f *feed) prepareTeam(ctx context.Context, i int) error {
	if err := f.env.MakeNamespace(ctx, team(i)); err != nil {
		return err
	}
	variants := []struct{ of, name string }{{images.Web, webImage(i).name}, {images.API, firstImage(i).name}}
	if i == 0 {
		variants = append(variants, struct{ of, name string }{images.API, deleted})
	}
	var pods []scenario.Pod
	for _, v := range variants {
		reference, err := f.env.PushVariant(ctx, v.of, "chaos/"+v.name)
		if err != nil {
			return err
		}
		pods = append(pods, scenario.Pod{Name: v.name, Image: reference})
	}
	if err := f.env.RunPods(ctx, team(i), pods...); err != nil {
		return err
	}
	if i == 0 {
		if err := f.makeUnscannable(ctx, pods[len(pods)-1]); err != nil {
			return err
		}
	}
	return f.env.MakeScanner(ctx, team(i), scenario.ScannerSettings{
		// After a summary, a message would name only some findings of an image that runs for the first time.
		FirstScan: "All", GroupWait: groupWait, GroupInterval: groupInterval, Receivers: []scenario.Receiver{{Name: "team", Announce: announced}},
	})
}

// makeUnscannable deletes a pod's image from the registry, and creates a pod whose image cannot be pulled.
func (f *feed) makeUnscannable(ctx context.Context, pod scenario.Pod) error {
	reference, err := build.ParseReference(pod.Image)
	if err != nil {
		return err
	}
	if err := remote.Delete(reference, remote.WithContext(ctx)); err != nil {
		return err
	}
	_, digest, _ := strings.Cut(pod.Image, "@")
	f.unscannable = []string{digest, f.env.Reference("chaos/" + notPulled)}
	return f.applyPod(ctx, team(0), scenario.Pod{Name: notPulled, Image: f.env.Reference("chaos/" + notPulled)})
}

// applyPod creates a pod, or changes its image, and does not wait for it.
func (f *feed) applyPod(ctx context.Context, namespace string, pod scenario.Pod) error {
	return f.env.Apply(ctx, "pods.yaml", map[string]any{"Namespace": namespace, "Pods": []scenario.Pod{pod}})
}

// publications are the further advisories that are published during a run, when a share of its time is over.
var publications = []struct {
	share      float64
	advisories []string
}{{0.2, []string{next}}, {0.4, []string{next}}, {0.6, []string{next, fix}}, {0.8, []string{next, fix}}}

// Directories of advisories: next adds a vulnerability to an image of each team, and fix its fix.
const (
	next = "advisories-next"
	fix  = "advisories-fix"
)

// added are the packages of webImage that have the vulnerability of next.
var added = []string{"libssl3", "openssl"}

// run changes images and publishes advisories until the time is over. An error means that a change did not succeed in a long time.
func (f *feed) run(ctx context.Context, duration time.Duration) error {
	began, done := time.Now(), 0
	for time.Since(began) < duration {
		if sleep(ctx, imagePause) != nil {
			return ctx.Err()
		}
		if err := f.readMessages(ctx); errors.Is(err, errForgotten) {
			return err
		} else if err != nil {
			continue // the API server is away
		}
		if done < len(publications) && time.Since(began) > time.Duration(publications[done].share*float64(duration)) && f.allAnnounced(next) {
			if err := f.publish(ctx, publications[done].advisories...); err != nil {
				return err
			}
			done++
			continue
		}
		if err := f.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

// publish publishes the advisories of further directories.
func (f *feed) publish(ctx context.Context, further ...string) error {
	f.mu.Lock()
	f.further = further
	for _, advisories := range further {
		if f.published[advisories].IsZero() {
			f.published[advisories] = time.Now()
		}
	}
	f.mu.Unlock()
	err := f.repeat(ctx, "publish "+strings.Join(further, ", "), func(ctx context.Context) error { return f.env.PublishDatabase(ctx, further...) })
	if err == nil {
		f.journal.log("feed", "vulnerability data", "published: "+f.env.Database.Built.Format(time.RFC3339))
	}
	return err
}

// repeat repeats a change until it succeeds: the API server or the registry may be away.
func (f *feed) repeat(ctx context.Context, what string, change func(context.Context) error) error {
	if err := wait.Eventually(ctx, changeTimeout, wait.Rarely, change); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// change adds an image to a team, or rolls out an image without vulnerabilities where one is fully announced.
func (f *feed) change(ctx context.Context) error {
	namespace := team(f.draws.IntN(teams))
	rollOut := f.draws.IntN(4) == 0
	waiting, ready := f.progress(namespace)
	switch {
	case waiting >= backlog:
		return nil
	case rollOut && len(ready) > 0:
		return f.rollOut(ctx, ready[f.draws.IntN(len(ready))])
	case len(f.images) >= maxImages:
		return nil
	}
	return f.add(ctx, namespace)
}

// progress returns the number of a team's images that are not fully announced, and the indexes of those that are and are not fixed yet.
func (f *feed) progress(namespace string) (waiting int, ready []int) {
	known := f.announcedSoFar()
	for i, img := range f.images {
		switch {
		case img.namespace != namespace:
		case len(ledger.Missing(f.findingsOf(img), known)) > 0:
			waiting++
		case img.fixed.IsZero():
			ready = append(ready, i)
		}
	}
	return waiting, ready
}

func (f *feed) announcedSoFar() []ledger.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages)
}

// add runs a new image.
func (f *feed) add(ctx context.Context, namespace string) error {
	img := image{namespace: namespace, name: fmt.Sprintf("image-%03d", len(f.images)+1), since: time.Now()}
	f.mu.Lock()
	f.images = append(f.images, img)
	f.mu.Unlock()
	return f.repeat(ctx, "run "+img.name, func(ctx context.Context) error {
		reference, err := f.env.PushVariant(ctx, images.API, "chaos/"+img.name)
		if err != nil {
			return err
		}
		return f.applyPod(ctx, namespace, scenario.Pod{Name: img.name, Image: reference})
	})
}

// rollOut lets a pod run an image without vulnerabilities, of the same repository.
func (f *feed) rollOut(ctx context.Context, i int) error {
	f.mu.Lock()
	img := &f.images[i]
	img.fixed = time.Now()
	f.mu.Unlock()
	return f.repeat(ctx, "roll out "+img.name, func(ctx context.Context) error {
		reference, err := f.env.PushVariant(ctx, images.Static, "chaos/"+img.name)
		if err != nil {
			return err
		}
		return f.applyPod(ctx, img.namespace, scenario.Pod{Name: img.name, Image: reference})
	})
}

// findingsOf returns what must be announced about an image, with the time since when it is true.
func (f *feed) findingsOf(img image) map[ledger.Finding]time.Time {
	all := map[ledger.Finding]time.Time{}
	for _, v := range f.has {
		line := scenario.Line{Repository: img.repository(f.env), ID: v.id, Package: v.pkg}
		all[ledger.Finding{Webhook: img.namespace, Name: ledger.NameOf(v1alpha1.ChangeNew, line)}] = img.since
		if !img.fixed.IsZero() {
			all[ledger.Finding{Webhook: img.namespace, Name: ledger.NameOf(v1alpha1.ChangeFixed, line)}] = img.fixed
		}
	}
	return all
}

// findings returns everything that must be announced.
func (f *feed) findings() map[ledger.Finding]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[ledger.Finding]time.Time{}
	for _, img := range f.images {
		maps.Copy(all, f.findingsOf(img))
	}
	for advisories, change := range map[string]v1alpha1.Change{next: v1alpha1.ChangeNew, fix: v1alpha1.ChangeFixAvailable} {
		if since := f.published[advisories]; !since.IsZero() {
			maps.Copy(all, f.addedBy(change, since))
		}
	}
	return all
}

// addedBy returns the findings of a publication.
func (f *feed) addedBy(change v1alpha1.Change, since time.Time) map[ledger.Finding]time.Time {
	all := map[ledger.Finding]time.Time{}
	for i := range teams {
		for _, pkg := range added {
			line := scenario.Line{Repository: webImage(i).repository(f.env), ID: scenario.NewVulnerability, Package: pkg}
			all[ledger.Finding{Webhook: team(i), Name: ledger.NameOf(change, line)}] = since
		}
	}
	return all
}

// allAnnounced reports whether what the first publication adds is announced to all teams, or not published yet.
func (f *feed) allAnnounced(advisories string) bool {
	since := f.published[advisories]
	return since.IsZero() || len(ledger.Missing(f.addedBy(v1alpha1.ChangeNew, since), f.announcedSoFar())) == 0
}

// readMessages reads what Slack has accepted. Fewer messages than before are an error: the stand-in would have lost its memory.
func (f *feed) readMessages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var all []ledger.Message
	summaries := 0
	for i := range teams {
		messages, err := f.env.Messages(ctx, team(i))
		if err != nil {
			return err
		}
		for _, m := range messages {
			message := ledger.NewMessage(team(i), m.Message)
			message.Accepted = m.Time
			if m.Answered {
				message.Answered = m.Time
			}
			if m.Summary {
				summaries++
			}
			if m.Summary || m.Time.Before(f.prepared) {
				message.Names = nil // some of what is present
			}
			all = append(all, message)
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.Message) int { return a.Accepted.Compare(b.Accepted) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(all) < len(f.messages) {
		return errForgotten
	}
	f.messages, f.summaries = all, summaries
	return nil
}

// errForgotten means that the stand-in for Slack was restarted.
var errForgotten = errors.New("the stand-in for Slack has fewer messages than before: the run proves nothing")
