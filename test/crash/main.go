// Command crash kills the manager and the notifier, as kill -9 does, at random moments and again and again, while they bring
// messages to a Slack that answers 200, 429, 500 or never. Then it counts what was lost, and what came twice.
//
// Manager and notifier run as they do in a cluster, over TLS and with tokens, beside a real API server, but without a kubelet,
// which would wait longer and longer before it starts a program again. Nodes and pods are objects that nobody runs; the engine is
// the fake backend. Nothing may be lost. A message may come twice only where nobody could know better: its answer was withheld,
// or somebody died while it was on its way and the notifier, which remembers what was taken, before it came again. There are
// never more of those than kills and withheld answers.
//
// Everything random is drawn from a seed, which is printed. When what is drawn happens depends on the machine all the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options of a run.
type options struct {
	// kills and digests are how many there are to be at least.
	kills, digests int
	seed           uint64
	// root is the project's directory; the programs are in its bin. assets are etcd and kube-apiserver.
	root, assets string
}

func main() {
	o := options{assets: os.Getenv("KUBEBUILDER_ASSETS")}
	flag.IntVar(&o.kills, "kills", 200, "how often manager and notifier are killed, together")
	flag.IntVar(&o.digests, "digests", 0, "how many messages are told meanwhile at least (default half as many)")
	flag.Uint64Var(&o.seed, "seed", 0, "what everything random is drawn from (default: another one each time)")
	flag.StringVar(&o.root, "root", ".", "the project's directory")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // envtest has nothing to say that is of interest here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-crash:", err)
		os.Exit(1)
	}
}

// run goes from nothing to the verdict, and removes what it made unless something is wrong.
func run(ctx context.Context, o options) error {
	if o.assets == "" {
		return errors.New(`KUBEBUILDER_ASSETS must name the directory of etcd and kube-apiserver: run "make e2e-crash"`)
	}
	if o.digests == 0 {
		o.digests = o.kills / 2
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	fmt.Printf("e2e-crash: %d kills, %d messages, seed %d\n", o.kills, o.digests, o.seed)
	dir, err := os.MkdirTemp("", "e2e-crash-")
	if err != nil {
		return err
	}
	if err := experiment(ctx, o, dir); err != nil {
		return fmt.Errorf("%w\nlogs, store and Slack's messages are in %s; once more: make e2e-crash KILLS=%d SEED=%d", err, dir, o.kills, o.seed)
	}
	return os.RemoveAll(dir)
}

// Random numbers of each of those who draw them, so that none depends on how fast the others are.
const (
	drawsOfSlack = iota
	drawsOfImages
	drawsOfManager
	drawsOfNotifier
)

func (o options) draws(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) }

// experiment lets it all happen and judges.
func experiment(ctx context.Context, o options, dir string) (err error) {
	slack := newSlack(o.draws(drawsOfSlack))
	defer slack.close()
	c, err := startCluster(ctx, o, dir, slack)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	t, err := startTrouble(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	if err := t.feed(ctx); err != nil {
		return err
	}
	slack.getWell()
	all := map[finding]time.Time{}
	for _, img := range t.images {
		maps.Copy(all, img.findings())
	}
	silence := settle(ctx, slack, all)
	told := slack.taken()
	if err := writeMessages(filepath.Join(dir, "messages.log"), told); err != nil {
		return err
	}
	v := judge(all, told, t.died())
	v.print(os.Stdout, slack.count())
	return errors.Join(silence, v.broken(o))
}

// Bounds of waiting at the end, when nobody is killed any more and Slack is well. A receiver that failed some times in a row is
// tried again after some minutes.
const (
	settleLimit = 6 * time.Minute
	// quiet is how long nothing must come before all is thought to be said.
	quiet = 12 * time.Second
)

// settle waits until everything was told and nothing comes any more. What is lost is the judge's to say.
func settle(ctx context.Context, slack *slack, all map[finding]time.Time) error {
	deadline := time.Now().Add(settleLimit)
	for time.Now().Before(deadline) {
		if len(missing(all, slack.taken())) == 0 && time.Since(slack.lastTaken()) > quiet {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if len(missing(all, slack.taken())) > 0 {
		return nil
	}
	return fmt.Errorf("messages go on coming %s after everything was told", settleLimit)
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
