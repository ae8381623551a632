package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/process"
)

// Mean times from the start of a process to its kill. A manager begins its work only when it has the lease of the manager before it,
// after 1.5 s.
const (
	managerLife  = 2500 * time.Millisecond
	notifierLife = 2500 * time.Millisecond
	longestLife  = 15 * time.Second
	// arrivalTimeout bounds the wait for a message when the kill is to coincide with a message.
	arrivalTimeout = 5 * time.Second
	// maxKillDelay bounds the time between a message's arrival at Slack and the kill that it triggers: until shortly after the answer.
	maxKillDelay = longestBefore + longestAfter + 200*time.Millisecond
)

const (
	// chaosLimit bounds the time until there are enough kills and messages.
	chaosLimit = 20 * time.Minute
	// turnLimit bounds the time for each suspended leader: the suspension, the takeover, and the start of another manager.
	turnLimit = 30 * time.Second
	// imagePause is the time between two new images.
	imagePause = 700 * time.Millisecond
	// backlog is the maximum number of a team's images that are not announced yet. With this number, a message still names each finding.
	backlog = 4
	// progressPause is the time between two lines of progress.
	progressPause = 15 * time.Second
)

// chaos runs manager and notifier, kills them, and changes images meanwhile.
type chaos struct {
	*cluster
	killers []*killer
	// cancel stops the killers and killing waits for them. failed receives the error that stopped a killer.
	cancel  context.CancelFunc
	killing sync.WaitGroup
	failed  chan error

	mu     sync.Mutex
	deaths []ledger.Fault
	images []image
	// running are the present processes, by the names of their killers.
	running map[string]*process.Process
	// suspending is held while a leader is suspended: without another manager, it would lead on, and rightly.
	suspending sync.Mutex
}

// startChaos starts both processes and their killers.
func startChaos(ctx context.Context, c *cluster) (*chaos, error) {
	t := &chaos{cluster: c, running: map[string]*process.Process{}}
	t.killers = []*killer{
		// Each kill during a message makes the receiver's backoff longer, in the end minutes.
		{chaos: t, who: ledger.Notifier, name: ledger.Notifier, start: c.startNotifier, life: notifierLife, atMessage: 0.2, draws: c.options.draws(drawsOfNotifier), spares: c.options.suspend},
	}
	for n := range c.options.managers {
		t.killers = append(t.killers, &killer{
			chaos: t, who: ledger.Manager, name: fmt.Sprintf("%s-%c", ledger.Manager, 'a'+n), start: c.startManager, life: managerLife, atMessage: 0.5,
			draws: c.options.draws(drawsOfManager + uint64(n)), suspends: c.options.suspend,
		})
	}
	t.failed = make(chan error, len(t.killers))
	ctx, t.cancel = context.WithCancel(ctx)
	for _, k := range t.killers {
		if err := k.next(); err != nil {
			return nil, errors.Join(err, t.stop())
		}
	}
	if c.writes != nil {
		if err := c.writes.record(ctx); err != nil {
			return nil, errors.Join(err, t.stop())
		}
	}
	for _, k := range t.killers {
		t.killing.Go(func() {
			if err := k.run(ctx); err != nil {
				t.failed <- err
			}
		})
	}
	return t, nil
}

// stop stops the killers and both processes.
func (t *chaos) stop() error {
	t.cancel()
	t.killing.Wait()
	var errs []error
	for _, k := range t.killers {
		if k.process != nil {
			errs = append(errs, k.process.Kill())
		}
	}
	return errors.Join(errs...)
}

// feed adds and changes images until there are enough kills and messages, and at least one image went through all stages.
func (t *chaos) feed(ctx context.Context) error {
	limit := chaosLimit
	if t.options.suspend {
		limit = max(limit, time.Duration(t.options.kills)*turnLimit)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	draws, began, lastReport := t.options.draws(drawsOfImages), time.Now(), time.Now()
	for !t.enough() {
		if time.Since(lastReport) > progressPause {
			lastReport = time.Now()
			fmt.Printf("  after %s: %d kills, %d messages\n", time.Since(began).Round(time.Second), t.killed(), ledger.Digests(t.slack.accepted()))
		}
		select {
		case err := <-t.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("only %d kills and %d messages in %s: %w", t.killed(), ledger.Digests(t.slack.accepted()), time.Since(began).Round(time.Second), ctx.Err())
		case <-time.After(imagePause):
		}
		team := draws.IntN(teams)
		if t.unannounced(team) >= backlog || !t.mayAddImage() && t.hasCompletedImage() {
			continue
		}
		if err := t.change(ctx, draws, team); err != nil {
			return err
		}
	}
	return nil
}

// change moves one of a team's fully announced images to its next stage, or adds a new image.
func (t *chaos) change(ctx context.Context, draws *rand.Rand, team int) error {
	reported := t.slack.accepted()
	var ready []int
	for i, img := range t.images {
		if img.team == team && img.stage < stageUnsuppressed && len(ledger.Missing(img.findings(), reported)) == 0 {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 || draws.IntN(4) == 0 {
		img := image{number: uint32(len(t.images) + 1), team: team, since: []time.Time{time.Now()}}
		if err := t.runImage(ctx, img); err != nil {
			return err
		}
		t.images = append(t.images, img)
		return nil
	}
	img := &t.images[ready[draws.IntN(len(ready))]]
	img.stage++
	img.since = append(img.since, time.Now())
	if img.stage == stageUnsuppressed {
		return t.deleteException(ctx, *img)
	}
	return t.rollOut(ctx, *img)
}

// unannounced returns the number of a team's images with findings that some receiver has not received.
func (t *chaos) unannounced(team int) int {
	reported, n := t.slack.accepted(), 0
	for _, img := range t.images {
		if img.team == team && len(ledger.Missing(img.findings(), reported)) > 0 {
			n++
		}
	}
	return n
}

func (t *chaos) enough() bool {
	return t.killed() >= t.options.kills && ledger.Digests(t.slack.accepted()) >= t.options.digests && t.hasCompletedImage()
}

// hasCompletedImage reports whether an image went through all stages and all receivers received each of its changes.
func (t *chaos) hasCompletedImage() bool {
	reported := t.slack.accepted()
	return slices.ContainsFunc(t.images, func(img image) bool {
		return img.stage == stageUnsuppressed && len(ledger.Missing(img.findings(), reported)) == 0
	})
}

func (t *chaos) killed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.deaths) - ledger.ByThemselves(t.deaths)
}

// maxLead is the share by which kills may be ahead of messages, and messages ahead of kills.
const maxLead = 0.2

// mayKill reports whether another kill is due. Kills are spread over the messages.
func (t *chaos) mayKill() bool {
	killed, reported := t.shares()
	return killed < 1 && killed < reported+maxLead
}

// mayAddImage reports whether another image is due. Messages are spread over the kills.
func (t *chaos) mayAddImage() bool {
	killed, reported := t.shares()
	return reported < killed+maxLead
}

// shares returns the kills and the messages so far, relative to the required numbers.
func (t *chaos) shares() (killed, reported float64) {
	return float64(t.killed()) / float64(t.options.kills), float64(ledger.Digests(t.slack.accepted())) / float64(t.options.digests)
}

// recordDeath records a death. Too many processes that ended without a kill are an error, since the test would then prove nothing.
func (t *chaos) recordDeath(d ledger.Fault, why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaths = append(t.deaths, d)
	if n := ledger.ByThemselves(t.deaths); n > 5+t.options.kills/5 {
		return fmt.Errorf("%d times a process ended that nobody killed: %w", n, why)
	}
	return nil
}

// recordedDeaths returns the deaths so far.
func (t *chaos) recordedDeaths() []ledger.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.deaths)
}

// killer kills one program repeatedly, and restarts it at once, also when it has ended without a kill.
type killer struct {
	*chaos
	// who is the program, and name that of this instance of it.
	who, name string
	// suspends means that the process is suspended while it leads, instead of being killed, and spares that it is left alone.
	suspends, spares bool
	start            func(name string) (*process.Process, error)
	// life is the mean time until a kill. atMessage is the share of kills that wait for a message.
	life      time.Duration
	atMessage float64
	draws     *rand.Rand
	process   *process.Process
	started   int
}

// next starts the next process.
func (k *killer) next() (err error) {
	k.started++
	k.process, err = k.start(fmt.Sprintf("%s-%03d", k.name, k.started))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running[k.name] = k.process
	return err
}

func (k *killer) run(ctx context.Context) error {
	for {
		begun := time.Now()
		alive := k.waitForKill(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the run ends
		case alive && (k.spares || !k.mayKill()):
			continue
		case alive && k.suspends:
			if ended, err := k.suspend(); err != nil || !ended {
				if err != nil {
					return err
				}
				continue
			}
		case alive:
			begun = time.Now()
		}
		why := k.process.Alive()
		if err := k.process.Kill(); err != nil {
			return err
		}
		if err := k.recordDeath(ledger.Fault{What: k.who, From: begun, To: time.Now(), ByItself: !alive}, why); err != nil {
			return err
		}
		if err := k.next(); err != nil {
			return err
		}
	}
}

// leading is in the log of a manager that leads.
const leading = `"msg":"Leading"`

// suspend suspends the process while it leads and another manager can take over, and waits until it has ended. It reports whether it did so.
func (k *killer) suspend() (ended bool, err error) {
	k.suspending.Lock()
	defer k.suspending.Unlock()
	if k.process.Logged(leading) == 0 || !k.hasStandby() {
		return false, nil
	}
	if err := k.process.Suspend(suspension); err != nil {
		return false, err
	}
	select {
	case <-k.process.Ended():
		return true, nil
	case <-time.After(longestLife):
		return false, fmt.Errorf("%s-%03d was suspended for %s while it led, and goes on", k.name, k.started, suspension)
	}
}

// hasStandby reports whether another manager waits for the lease.
func (k *killer) hasStandby() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, other := range k.running {
		if name != k.name && name != ledger.Notifier && other.Alive() == nil && other.Logged("Attempting to acquire leader lease") > 0 && other.Logged(leading) == 0 {
			return true
		}
	}
	return false
}

// waitForKill waits until it is time to kill: a random time, or until shortly after a message has arrived at Slack. It reports whether the
// process is alive then.
func (k *killer) waitForKill(ctx context.Context) bool {
	if k.draws.Float64() >= k.atMessage {
		return k.until(ctx, nil, min(longestLife, time.Duration(k.draws.ExpFloat64()*float64(k.life))))
	}
	delay := time.Duration(k.draws.Int64N(int64(maxKillDelay)))
	select {
	case <-k.slack.arrivals: // an arrival from before the wait
	default:
	}
	return k.until(ctx, k.slack.arrivals, arrivalTimeout) && k.until(ctx, nil, delay)
}

// until waits for an event or for a time. It returns false if the process ends before or the context is done.
func (k *killer) until(ctx context.Context, event <-chan struct{}, atMost time.Duration) (alive bool) {
	select {
	case <-ctx.Done():
		return false
	case <-k.process.Ended():
		return false
	case <-event:
	case <-time.After(atMost):
	}
	return true
}
