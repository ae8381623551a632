// Command chaos causes random faults on the local cluster while the operator scans images and announces findings, and judges what the operator has
// at the end.
//
// Three schedules of faults run at the same time:
//
//   - processes: manager, notifier, match workers, catalog Jobs and PostgreSQL are killed with SIGKILL.
//   - connections: those of the operator's pods all lead through proxies. They are delayed, held, cut, refused and throttled: to the API server, the
//     notifier, Slack, the ingest API, the registry, the vulnerability data and the database.
//   - machine: containerd, the API server or the registry is killed and stays away for a while. The disk of the store or that of the match workers is
//     full. The API server throttles. Slack throttles, fails, or does not answer.
//
// Meanwhile new images run, images are rolled out and vulnerability data is published.
//
// At the end, each running image is scanned, failed, or waits for a reason; the findings of each scanned image are those that grype prints; what was
// announced is what is present; nothing is lost; and each repeated message was unavoidable (package ledger).
//
// All random values are drawn from a seed, which is printed. The faults and their order depend only on the seed, their timing on the machine, too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/parity"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// options are the options of the command line.
type options struct {
	// duration is the time of all faults, divided among the stores.
	duration time.Duration
	seed     uint64
	stores   []string
}

func main() {
	var o options
	var stores string
	flag.DurationVar(&o.duration, "duration", 30*time.Minute, "how long faults happen, for all stores together")
	flag.Uint64Var(&o.seed, "seed", 0, "what everything random is drawn from (default: another one each time)")
	flag.StringVar(&stores, "stores", "sqlite,postgres", "where the store is, one after the other: sqlite, postgres")
	flag.Parse()
	o.stores = strings.Split(stores, ",")
	ctrllog.SetLogger(logr.Discard()) // silences a library
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-chaos:", err)
		os.Exit(1)
	}
}

// run runs the experiment with each store.
func run(ctx context.Context, o options) error {
	if o.duration <= 0 {
		return fmt.Errorf("-duration: %s is not positive", o.duration)
	}
	for _, store := range o.stores {
		if store != "sqlite" && store != "postgres" {
			return fmt.Errorf("-stores: %q is not sqlite or postgres", store)
		}
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	each := o.duration / time.Duration(len(o.stores))
	for _, store := range o.stores {
		fmt.Printf("e2e-chaos: %s of faults, store %s, seed %d\n", each, store, o.seed)
		if err := runWith(ctx, o, store, each); err != nil {
			return fmt.Errorf("%w\nonce more: make e2e-chaos STORE=%s DURATION=%s SEED=%d", err, store, each, o.seed)
		}
	}
	return nil
}

// Each consumer of random numbers has a stream of its own, so that none depends on the speed of the others.
const (
	drawsOfFeed = iota
	drawsOfProcesses
	drawsOfConnections
	drawsOfMachine
)

func (o options) draws(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) }

// experiment is a run with one store.
type experiment struct {
	options
	env       *scenario.Environment
	duration  time.Duration
	journal   *journal
	feed      *feed
	disks     []*disk
	links     []*link
	watcher   *watcher
	schedules []*schedule
	// before are the findings of each team that were announced before the first fault.
	before map[string][]string
	// samples and wrong are those of verdict.
	samples, wrong int
}

// runWith prepares the cluster, causes faults, judges, and removes everything, also after an error.
func runWith(ctx context.Context, o options, store string, duration time.Duration) (err error) {
	node, registry, err := nodeAddress()
	if err != nil {
		return err
	}
	settings, err := scenario.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return err
	}
	// The findings are those of the project's own advisories.
	settings.Backend, settings.Both, settings.Upstream, settings.PostgreSQL = v1alpha1.BackendGrype, false, false, store == "postgres"
	settings.DatabaseClaim = databaseClaim
	env, err := scenario.Connect(ctx, settings)
	if err != nil {
		return err
	}
	record := newJournal(func(line string) { fmt.Println(line) })
	cluster, claim := os.Getenv("SCANNER_CLUSTER"), "scanner-operator-store"
	if settings.PostgreSQL {
		claim = "scanner-operator-postgresql"
	}
	e := &experiment{
		options: o, env: env, duration: duration, journal: record,
		disks: []*disk{newDisk(cluster, "store", claim, true), newDisk(cluster, "match-workers", databaseClaim, false)},
		links: linksOf(registry, settings.PostgreSQL), before: map[string][]string{},
		feed: &feed{env: env, draws: o.draws(drawsOfFeed), journal: record, published: map[string]time.Time{}},
	}
	e.makeSchedules()
	defer func() {
		if err != nil {
			env.Diagnose(context.WithoutCancel(ctx))
		}
		err = errors.Join(err, e.cleanUp(context.WithoutCancel(ctx)))
	}()
	if err := scenario.RunSteps(ctx, os.Stdout, time.Now, e.prepare(node)); err != nil {
		return err
	}
	if err := e.causeFaults(ctx); err != nil {
		return err
	}
	return e.judge(ctx)
}

// makeSchedules makes the schedules of faults.
func (e *experiment) makeSchedules() {
	programs := []program{manager, notifier}
	if e.env.PostgreSQL {
		programs = append(programs, postgreSQL)
	}
	e.watcher = newWatcher(e.env.Client, e.journal, programs...)
	connections := e.draws(drawsOfConnections)
	machine := append(clusterFaults(e.env.Root, inDelivery), e.disks[0].fault(), e.disks[1].fault(),
		throttling(e.env.Client, e.env.Clientset.AuthenticationV1().RESTClient()))
	e.schedules = []*schedule{
		{
			name: "processes", faults: e.watcher.killFaults(append(programs, matchWorker, catalogJob)...), draws: e.draws(drawsOfProcesses),
			// A manager begins its work only when it has the lease of the manager before it, after 20 s.
			shortestPause: 5 * time.Second, longestPause: 35 * time.Second,
		},
		{
			name: "connections", faults: connectionFaults(e.links, connections), draws: connections,
			shortestPause: 2 * time.Second, longestPause: 15 * time.Second, shortestDuration: 3 * time.Second, longestDuration: 25 * time.Second,
		},
		{
			name: "machine", faults: append(machine, slackFaults(e.env)...), draws: e.draws(drawsOfMachine),
			shortestPause: 5 * time.Second, longestPause: 30 * time.Second, shortestDuration: 3 * time.Second, longestDuration: 40 * time.Second,
		},
	}
	for _, s := range e.schedules {
		s.journal = e.journal
	}
}

// prepare returns the steps before the first fault.
func (e *experiment) prepare(node string) []scenario.Step {
	setUp := e.env.SetUp()
	return slices.Concat(
		[]scenario.Step{{Name: "End the faults of an earlier run", Run: func(ctx context.Context) (string, error) {
			return "there are none", errors.Join(e.undoAll(ctx), restoreConnections(ctx, e.links))
		}}},
		setUp[:1], // remove what an earlier run left
		[]scenario.Step{{Name: "Disks that can be filled", Run: e.provideDisks}},
		setUp[1:],
		[]scenario.Step{
			{Name: "A volume for the vulnerability databases of match workers", Run: func(ctx context.Context) (string, error) {
				return databaseClaim, e.disks[1].makeClaim(ctx, e.env.Client)
			}},
			{Name: "Proxies before everything that the operator connects to", Run: func(ctx context.Context) (string, error) { return e.redirect(ctx, node) }},
			{Name: "Teams with their first images", Run: e.feed.prepare},
			{Name: "What the teams know before the first fault", Run: e.recordBefore},
		},
	)
}

// databaseClaim is the PersistentVolumeClaim in which match workers keep vulnerability databases, one after the other.
const databaseClaim = "scanner-chaos-databases"

// provideDisks makes the disks, and removes those of an earlier run.
func (e *experiment) provideDisks(ctx context.Context) (string, error) {
	for _, d := range e.disks {
		if err := errors.Join(d.remove(ctx, e.env.Client), d.provide(ctx, e.env.Client)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d of %d MiB", len(e.disks), diskSize>>20), nil
}

// redirect leads all connections through the proxies. The pods are replaced, so that no earlier connection is left.
func (e *experiment) redirect(ctx context.Context, node string) (string, error) {
	if err := redirect(ctx, e.env.Client, node, e.links); err != nil {
		return "", err
	}
	for _, deployment := range []string{scenario.ManagerDeployment, scenario.NotifierDeployment} {
		if _, err := e.env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "rollout", "restart", deployment); err != nil {
			return "", err
		}
		if err := e.env.WaitForRollout(ctx, scenario.SystemNamespace, deployment); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d proxies", len(e.links)), nil
}

// recordBefore records what was announced before the first fault.
func (e *experiment) recordBefore(ctx context.Context) (string, error) {
	n := 0
	for i := range teams {
		found, err := e.env.Findings(ctx, team(i))
		if err != nil {
			return "", err
		}
		e.before[team(i)] = linesOf(found)
		n += len(e.before[team(i)])
	}
	return fmt.Sprintf("%d findings", n), nil
}

// causeFaults runs the schedules, the feed and the watcher until the time is over. All faults are ended then.
func (e *experiment) causeFaults(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	failed := make(chan error, len(e.schedules)+1)
	for _, s := range e.schedules {
		running.Go(func() {
			if err := s.run(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	running.Go(func() { e.watch(ctx) })
	err := e.feed.run(ctx, e.duration)
	cancel()
	running.Wait()
	close(failed)
	errs := []error{err}
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, e.undoAll(context.WithoutCancel(ctx)))...)
}

// watchPause is the time between two observations of the pods and the Scanners.
const watchPause = 2 * time.Second

// watch observes the operator's pods, and checks whether the numbers of each Scanner add up at any time. It ends with the context.
func (e *experiment) watch(ctx context.Context) {
	for sleep(ctx, watchPause) == nil {
		if err := e.watcher.observe(ctx); err != nil {
			continue // the API server is away
		}
		for i := range teams {
			e.sample(ctx, team(i))
		}
	}
}

func (e *experiment) sample(ctx context.Context, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	scanner, err := e.env.Scanner(ctx, namespace)
	if err != nil {
		return
	}
	e.samples++
	if c := scanner.Status.Images; c.Total != c.Scanned+c.Failed+c.Pending+c.Excluded {
		e.wrong++
		e.journal.log("watcher", namespace, fmt.Sprintf("the numbers do not add up: %+v", c))
	}
}

// undoAll ends all faults, also those of an earlier run that was killed.
func (e *experiment) undoAll(ctx context.Context) error {
	var errs []error
	for _, s := range e.schedules {
		for _, f := range s.faults {
			if f.end == nil || !e.exists(f) {
				continue
			}
			if err := undo(ctx, f.end); err != nil {
				errs = append(errs, fmt.Errorf("%s could not be ended: %w", f.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// exists reports whether the object of a fault is there: before the preparation, there are neither proxies nor the disk.
func (e *experiment) exists(f fault) bool { return f.exists == nil || f.exists() }

// cleanUp ends all faults and removes everything.
func (e *experiment) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	err := errors.Join(e.undoAll(ctx), restoreConnections(ctx, e.links))
	if os.Getenv("E2E_KEEP") != "" {
		return err
	}
	_, removing := e.env.Remove(ctx)
	err = errors.Join(err, removing)
	for _, d := range e.disks {
		err = errors.Join(err, d.remove(ctx, e.env.Client))
	}
	return err
}

const (
	// cleanUpTimeout bounds the removal of everything.
	cleanUpTimeout = 5 * time.Minute
	// settleTimeout bounds the time from the end of the faults until everything is scanned and announced. A receiver or an image with several
	// failures in a row is tried again only after minutes.
	settleTimeout = 17 * time.Minute
	// quiet is how long no message may arrive before all count as sent.
	quiet = 15 * time.Second
)

// judge waits until the operator has recovered, and judges.
func (e *experiment) judge(ctx context.Context) error {
	fmt.Printf("  %s the faults are over\n", time.Now().Format(ledger.Stamp))
	began := time.Now()
	// The API server may have started just now, and the pods after it.
	if err := wait.Eventually(ctx, settleTimeout, wait.Rarely, func(ctx context.Context) error {
		return errors.Join(e.watcher.observe(ctx),
			e.env.WaitForRollout(ctx, scenario.SystemNamespace, scenario.ManagerDeployment, scenario.NotifierDeployment))
	}); err != nil {
		return err
	}
	if err := e.feed.publish(ctx, e.feed.further...); err != nil { // a newer build of the same data
		return err
	}
	var states []*teamState
	reported := time.Now()
	settling := wait.Eventually(ctx, settleTimeout, quietPause, func(ctx context.Context) (err error) {
		states, err = e.settle(ctx)
		if err != nil && time.Since(reported) > progressPause {
			reported = time.Now()
			first, _, _ := strings.Cut(err.Error(), "\n")
			e.journal.log("settling", "not done", first)
		}
		return err
	})
	if states == nil || ctx.Err() != nil {
		return settling
	}
	if settling != nil { // judged nevertheless: what is missing is lost
		fmt.Printf("  not everything is done %s after the faults: %v\n", settleTimeout, settling)
	} else {
		fmt.Printf("  everything is scanned and announced after %s\n", time.Since(began).Round(time.Second))
	}
	if err := e.compareWithEngine(ctx, states); err != nil {
		return err
	}
	if err := errors.Join(e.watcher.observe(ctx), e.feed.readMessages(ctx)); err != nil {
		return err
	}
	faults := e.journal.disturbances()
	messages := forgetAnswers(e.feed.announcedSoFar(), faults, losesAnswers(e.links))
	v := judge(states, e.feed.findings(), messages, faults)
	v.tallies, v.samples, v.wrong, v.renewed = e.tallies(), e.samples, e.wrong, e.feed.summaries
	v.print(os.Stdout)
	if err := v.problems(); err != nil {
		return errors.Join(err, writeMessages(filepath.Join(e.env.Root, "bin", "chaos-messages.log"), messages))
	}
	return nil
}

// tallies returns the counts of all faults, also of those that the run was too short for.
func (e *experiment) tallies() map[string]tally {
	counted := e.journal.tallies()
	for _, s := range e.schedules {
		for _, f := range s.faults {
			if _, known := counted[f.name]; !known {
				counted[f.name] = tally{}
			}
		}
	}
	return counted
}

const (
	// quietPause is the time between two checks whether everything is done.
	quietPause = 5 * time.Second
	// progressPause is the time between two lines of progress.
	progressPause = 30 * time.Second
)

// settle returns the states of all teams, and an error as long as not everything is scanned and announced.
func (e *experiment) settle(ctx context.Context) (states []*teamState, err error) {
	if err := errors.Join(e.watcher.observe(ctx), e.feed.readMessages(ctx)); err != nil {
		return nil, err
	}
	var errs []error
	for i := range teams {
		state, err := readState(ctx, e.env, team(i))
		if err != nil {
			return nil, err
		}
		state.before, state.unscannable = e.before[team(i)], map[string]bool{}
		for _, id := range e.feed.unscannable {
			if state.running[id] {
				state.unscannable[id] = true
			}
		}
		states, errs = append(states, state), append(errs, state.settled(e.env.Database.Built))
	}
	messages := e.feed.announcedSoFar()
	if missing := ledger.Missing(e.feed.findings(), messages); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("%d findings are not announced, such as %s for %s", len(missing), missing[0].Name, missing[0].Webhook))
	}
	if n := len(messages); n > 0 && time.Since(messages[n-1].Accepted) < quiet {
		errs = append(errs, errors.New("messages arrive"))
	}
	_, coverage := checkCoverage(states)
	return states, errors.Join(append(errs, coverage...)...)
}

// compareWithEngine runs grype for each scanned image, with the data that was published last.
func (e *experiment) compareWithEngine(ctx context.Context, states []*teamState) error {
	home, err := os.MkdirTemp("", "e2e-chaos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	grype, err := parity.NewGrype(e.env.Database.Cache, home)
	if err != nil {
		return err
	}
	for _, state := range states {
		for _, img := range state.scanned() {
			repository := img.Repositories()[0]
			if state.engine[img.Digest], err = grype.Matches(ctx, repository+"@"+img.Digest, img.Platform); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeMessages writes what Slack accepted to a file, for the analysis of failures.
func writeMessages(name string, messages []ledger.Message) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Slack's messages are in", name)
	return errors.Join(ledger.Write(file, messages), file.Close())
}
