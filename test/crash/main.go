// Command crash kills the manager and the notifier repeatedly with SIGKILL at random times, while they deliver messages to a Slack that
// answers 200, 429, 500 or not at all. At the end it counts lost and repeated messages.
//
// Manager and notifier run as in a cluster, over TLS and with tokens, against a real API server, but without a kubelet, whose restart
// backoff would grow. Nodes and pods are only objects; the engine is the fake backend. No message may be lost. A message may be repeated
// only where this is unavoidable: Slack withheld its response, or a process was killed during the delivery and the notifier, which
// remembers accepted messages, was killed before the retry. A single kill of the notifier can be both. There are never more repeated
// messages than kills and withheld responses.
//
// With a store on a server, two managers run, one of which leads. With -suspend, the leader is not killed but suspended for twice its lease: when it
// goes on, another one leads. It must then write nothing and send nothing before it ends by itself. On PostgreSQL a trigger records who writes.
//
// All random values are drawn from a seed, which is printed. The timing still depends on the machine.
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

	"github.com/scanner-operator/scanner-operator/test/ledger"
)

// options are the options of the command line.
type options struct {
	// kills and digests are the minimum numbers of kills and of messages.
	kills, digests int
	seed           uint64
	// managers is how many managers run, and suspend that their leader is suspended instead of being killed.
	managers int
	suspend  bool
	// store is where the manager's store is: sqlite, postgres or mariadb.
	store string
	// root is the project's directory, with the programs in bin. assets is the directory of etcd and kube-apiserver.
	root, assets string
}

func main() {
	o := options{assets: os.Getenv("KUBEBUILDER_ASSETS")}
	flag.IntVar(&o.kills, "kills", 200, "how often manager and notifier are killed, together")
	flag.IntVar(&o.digests, "digests", 0, "how many messages are sent meanwhile at least (default: depends on the kills)")
	flag.Uint64Var(&o.seed, "seed", 0, "what everything random is drawn from (default: another one each time)")
	flag.StringVar(&o.store, "store", "sqlite", "where the store is: sqlite, or on a server that is started for this: postgres or mariadb")
	flag.IntVar(&o.managers, "managers", 0, "how many managers run (default 2 with a store on a server, and else 1)")
	flag.BoolVar(&o.suspend, "suspend", false, "suspend the leader for twice its lease instead of killing it, and do not kill the notifier; with PostgreSQL")
	flag.StringVar(&o.root, "root", ".", "the project's directory")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // silences envtest
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-crash:", err)
		os.Exit(1)
	}
}

// run runs the experiment in a new directory. The directory is removed unless something fails.
func run(ctx context.Context, o options) error {
	if o.assets == "" {
		return errors.New(`KUBEBUILDER_ASSETS must name the directory of etcd and kube-apiserver: run "make e2e-crash"`)
	}
	if o.digests == 0 {
		o.digests = o.kills / 2
		if o.suspend { // a turn takes long, and messages go out in each
			o.digests = 5 * o.kills
		}
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	if _, known := stores[o.store]; !known {
		return fmt.Errorf("-store: %q is not sqlite, postgres or mariadb", o.store)
	}
	if o.managers == 0 {
		o.managers = 2
		if o.store == "sqlite" {
			o.managers = 1
		}
	}
	if o.suspend && (o.store != "postgres" || o.managers < 2) {
		return errors.New("-suspend: needs -store=postgres and two managers")
	}
	what := "kills"
	if o.suspend {
		what = "suspended leaders"
	}
	fmt.Printf("e2e-crash: %d %s, %d messages, store %s, %d managers, seed %d\n", o.kills, what, o.digests, o.store, o.managers, o.seed)
	dir, err := os.MkdirTemp("", "e2e-crash-")
	if err != nil {
		return err
	}
	if err := experiment(ctx, o, dir); err != nil {
		return fmt.Errorf("%w\nlogs, store and Slack's messages are in %s; once more: make e2e-crash STORE=%s KILLS=%d SEED=%d%s", err, dir, o.store, o.kills, o.seed, map[bool]string{true: " SUSPEND=1"}[o.suspend])
	}
	return os.RemoveAll(dir)
}

// Each consumer of random numbers has a stream of its own, so that none depends on the speed of the others.
const (
	drawsOfSlack = iota
	drawsOfImages
	drawsOfNotifier
	drawsOfManager // and the following ones, one for each manager
)

func (o options) draws(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) }

// experiment runs the cluster and the killers and judges the messages.
func experiment(ctx context.Context, o options, dir string) (err error) {
	slack := newSlack(o.draws(drawsOfSlack))
	defer slack.close()
	c, err := startCluster(ctx, o, dir, slack)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	t, err := startChaos(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	if err := t.feed(ctx); err != nil {
		return err
	}
	slack.becomeHealthy()
	all := map[ledger.Finding]time.Time{}
	for _, img := range t.images {
		maps.Copy(all, img.findings())
	}
	silence := waitForMessages(ctx, slack, all)
	messages := slack.accepted()
	if err := writeMessages(filepath.Join(dir, "messages.log"), messages); err != nil {
		return err
	}
	v := verdict{Verdict: ledger.Judge(all, messages, t.recordedDeaths())}
	if c.writes != nil {
		if v.writes, v.deposedWrites, err = c.writes.judge(ctx); err != nil {
			return err
		}
	}
	v.print(os.Stdout, slack.count())
	return errors.Join(silence, v.problems(o))
}

// writeMessages writes the accepted messages to a file, for the analysis of failures.
func writeMessages(name string, accepted []ledger.Message) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(ledger.Write(file, accepted), file.Close())
}

// Bounds of the wait at the end, when kills have stopped and Slack answers normally. A receiver with several failures in a row is
// retried only after some minutes.
const (
	deliveryTimeout = 6 * time.Minute
	// quiet is how long no message may arrive before all count as sent.
	quiet = 12 * time.Second
)

// waitForMessages waits until every finding was announced and no more messages arrive. Lost findings are not an error here: judge reports them.
func waitForMessages(ctx context.Context, slack *slack, all map[ledger.Finding]time.Time) error {
	deadline := time.Now().Add(deliveryTimeout)
	for time.Now().Before(deadline) {
		if len(ledger.Missing(all, slack.accepted())) == 0 && time.Since(slack.lastAccepted()) > quiet {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if len(ledger.Missing(all, slack.accepted())) > 0 {
		return nil
	}
	return fmt.Errorf("messages go on coming %s after everything was announced", deliveryTimeout)
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
