package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/process"
)

// The processes that are killed.
const (
	manager  = "manager"
	notifier = "notifier"
)

// Mean times from start to kill. What a manager does begins when it has the lease of the one before, after a second and a half.
const (
	managerLife  = 2500 * time.Millisecond
	notifierLife = 2500 * time.Millisecond
	longestLife  = 15 * time.Second
	// knockWait is how long one who is to be killed with a message waits for it.
	knockWait = 5 * time.Second
	// knockDelay is how long after a message's arrival at Slack somebody is killed at most who is to be killed by it: shortly
	// after the answer.
	knockDelay = longestBefore + longestAfter + 200*time.Millisecond
)

const (
	// troubleLimit is how long it may take until there were enough kills and messages.
	troubleLimit = 20 * time.Minute
	// imagePause is the time between two new images.
	imagePause = 700 * time.Millisecond
	// backlog is of how many images at most a team has yet to hear: of so many that a message names each finding.
	backlog = 4
	// progressPause is the time between two lines on what goes on.
	progressPause = 15 * time.Second
)

// death is the end of one process.
type death struct {
	who string
	// from and to are between what it died.
	from, to time.Time
	// byItself says that nobody killed it.
	byItself bool
}

// trouble is what happens to the operator.
type trouble struct {
	*cluster
	killers []*killer
	// cancel and killing end the killing, failed tells of what keeps it from going on.
	cancel  context.CancelFunc
	killing sync.WaitGroup
	failed  chan error

	mu     sync.Mutex
	deaths []death
	images []image
}

// startTrouble starts both processes and begins to kill them.
func startTrouble(ctx context.Context, c *cluster) (*trouble, error) {
	t := &trouble{cluster: c}
	t.killers = []*killer{
		{trouble: t, who: manager, start: c.startManager, life: managerLife, atMessage: 0.5, draws: c.options.draws(drawsOfManager)},
		// Each message that it is killed with keeps the receiver waiting, in the end for minutes.
		{trouble: t, who: notifier, start: c.startNotifier, life: notifierLife, atMessage: 0.2, draws: c.options.draws(drawsOfNotifier)},
	}
	t.failed = make(chan error, len(t.killers))
	ctx, t.cancel = context.WithCancel(ctx)
	for _, k := range t.killers {
		if err := k.next(); err != nil {
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

// stop ends both processes.
func (t *trouble) stop() error {
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

// feed has images come up and change until there were enough kills and messages, and at least one went through all stages.
func (t *trouble) feed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, troubleLimit)
	defer cancel()
	draws, began, spoke := t.options.draws(drawsOfImages), time.Now(), time.Now()
	for !t.enough() {
		if time.Since(spoke) > progressPause {
			spoke = time.Now()
			fmt.Printf("  after %s: %d kills, %d messages\n", time.Since(began).Round(time.Second), t.killed(), digests(t.slack.taken()))
		}
		select {
		case err := <-t.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("only %d kills and %d messages in %s: %w", t.killed(), digests(t.slack.taken()), time.Since(began).Round(time.Second), ctx.Err())
		case <-time.After(imagePause):
		}
		team := draws.IntN(teams)
		if t.behind(team) >= backlog || !t.mayTell() && t.wentThrough() {
			continue
		}
		if err := t.change(ctx, draws, team); err != nil {
			return err
		}
	}
	return nil
}

// change brings one of a team's images of which all was told to its next stage, or has a new one come up.
func (t *trouble) change(ctx context.Context, draws *rand.Rand, team int) error {
	told := t.slack.taken()
	var ready []int
	for i, img := range t.images {
		if img.team == team && img.stage < stageUncovered && len(missing(img.findings(), told)) == 0 {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 || draws.IntN(4) == 0 {
		img := image{number: uint16(len(t.images) + 1), team: team, since: []time.Time{time.Now()}}
		if err := t.runs(ctx, img); err != nil {
			return err
		}
		t.images = append(t.images, img)
		return nil
	}
	img := &t.images[ready[draws.IntN(len(ready))]]
	img.stage++
	img.since = append(img.since, time.Now())
	if img.stage == stageUncovered {
		return t.uncovers(ctx, *img)
	}
	return t.rollsOut(ctx, *img)
}

// behind is how many images of a team are not told to all of its receivers.
func (t *trouble) behind(team int) int {
	told, n := t.slack.taken(), 0
	for _, img := range t.images {
		if img.team == team && len(missing(img.findings(), told)) > 0 {
			n++
		}
	}
	return n
}

func (t *trouble) enough() bool {
	return t.killed() >= t.options.kills && digests(t.slack.taken()) >= t.options.digests && t.wentThrough()
}

// wentThrough says that an image went through all stages and all receivers were told of each.
func (t *trouble) wentThrough() bool {
	told := t.slack.taken()
	return slices.ContainsFunc(t.images, func(img image) bool {
		return img.stage == stageUncovered && len(missing(img.findings(), told)) == 0
	})
}

func (t *trouble) killed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.deaths) - byItself(t.deaths)
}

// ahead is by what share of all kills may be ahead of messages, and the other way round.
const ahead = 0.2

// mayKill says whether it is time for another kill: they are spread over the messages.
func (t *trouble) mayKill() bool {
	killed, told := t.shares()
	return killed < 1 && killed < told+ahead
}

// mayTell says whether it is time for another image: messages are spread over the kills.
func (t *trouble) mayTell() bool {
	killed, told := t.shares()
	return told < killed+ahead
}

// shares are how much there was of what there is to be.
func (t *trouble) shares() (killed, told float64) {
	return float64(t.killed()) / float64(t.options.kills), float64(digests(t.slack.taken())) / float64(t.options.digests)
}

// dies records a death. One that dies of itself all the time would prove nothing.
func (t *trouble) dies(d death, why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaths = append(t.deaths, d)
	if n := byItself(t.deaths); n > 5+t.options.kills/5 {
		return fmt.Errorf("%d times a process ended that nobody killed: %w", n, why)
	}
	return nil
}

func byItself(deaths []death) (n int) {
	for _, d := range deaths {
		if d.byItself {
			n++
		}
	}
	return n
}

// died are the deaths so far.
func (t *trouble) died() []death {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.deaths)
}

// killer kills one program again and again, and starts it anew at once, also when it ended by itself.
type killer struct {
	*trouble
	who   string
	start func(name string) (*process.Process, error)
	// life is the mean time until it is killed, atMessage the share of kills that wait for a message.
	life      time.Duration
	atMessage float64
	draws     *rand.Rand
	process   *process.Process
	started   int
}

// next starts the next process.
func (k *killer) next() (err error) {
	k.started++
	k.process, err = k.start(fmt.Sprintf("%s-%03d", k.who, k.started))
	return err
}

func (k *killer) run(ctx context.Context) error {
	for {
		begun := time.Now()
		alive := k.moment(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it is told to end
		case alive && !k.mayKill():
			continue
		case alive:
			begun = time.Now()
		}
		why := k.process.Alive()
		if err := k.process.Kill(); err != nil {
			return err
		}
		if err := k.dies(death{who: k.who, from: begun, to: time.Now(), byItself: !alive}, why); err != nil {
			return err
		}
		if err := k.next(); err != nil {
			return err
		}
	}
}

// moment waits until it is time to kill: for as long as chance wants, or until shortly after a message came to Slack. It says
// whether the process is alive then.
func (k *killer) moment(ctx context.Context) bool {
	if k.draws.Float64() >= k.atMessage {
		return k.until(ctx, nil, min(longestLife, time.Duration(k.draws.ExpFloat64()*float64(k.life))))
	}
	delay := time.Duration(k.draws.Int64N(int64(knockDelay)))
	select {
	case <-k.slack.knocks: // of a message before
	default:
	}
	return k.until(ctx, k.slack.knocks, knockWait) && k.until(ctx, nil, delay)
}

// until waits for an event or for a time, unless the process ends before.
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
