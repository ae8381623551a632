package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// image is an image that a team runs, with a repository of its own. It goes through stages.
type image struct {
	number uint32
	team   int
	stage  int
	// since holds the time when each stage began.
	since []time.Time
}

// stageUnsuppressed follows the stages of the fake backend: the exception for the third finding is deleted.
const stageUnsuppressed = fake.StageFixed + 1

// name contains the word that makes the fake backend find something.
func (i image) name() string { return fmt.Sprintf("evolving-%04d", i.number) }

func (i image) repository() string { return "registry.example.com/" + i.name() }

func (i image) digest() string { return fake.EvolvingDigest(i.number, min(i.stage, fake.StageFixed)) }

// changesOf lists the changes of each stage: the change, the number of the finding, and its package.
var changesOf = [...][]struct {
	change v1alpha1.Change
	which  int
	pkg    string
}{
	fake.StageNew:          {{v1alpha1.ChangeNew, 1, "openssl"}, {v1alpha1.ChangeNew, 2, "zlib"}},
	fake.StageFixAvailable: {{v1alpha1.ChangeFixAvailable, 2, "zlib"}},
	fake.StageExploited:    {{v1alpha1.ChangeEscalated, 2, "zlib"}},
	fake.StageFixed:        {{v1alpha1.ChangeFixed, 1, "openssl"}},
	// An exception suppresses the finding until this stage.
	stageUnsuppressed: {{v1alpha1.ChangeNew, 3, "curl"}},
}

// findings returns all findings of the image that must be announced, each with its earliest time.
func (i image) findings() map[ledger.Finding]time.Time {
	all := map[ledger.Finding]time.Time{}
	for stage := range i.stage + 1 {
		for _, c := range changesOf[stage] {
			for r := range receivers {
				line := scenario.Line{Repository: i.repository(), ID: fake.EvolvingID(i.number, c.which), Package: c.pkg}
				all[ledger.Finding{Webhook: webhook(i.team, r), Name: ledger.NameOf(c.change, line)}] = i.since[stage]
			}
		}
	}
	return all
}

// verdict is the result of a run.
type verdict struct {
	ledger.Verdict
	// writes is the number of transactions that were recorded, and deposedWrites that of managers that did not lead any more.
	writes, deposedWrites int
}

func (v verdict) print(out io.Writer, c counts) {
	for _, who := range []string{ledger.Manager, ledger.Notifier} {
		v.PrintEnds(out, who)
	}
	ledger.Print(out, slices.Concat([]ledger.Row{
		{What: "digests", N: v.Digests},
		{What: "messages that Slack accepted", N: v.Accepted},
		{What: "answered 429", N: c.limited},
		{What: "answered 500", N: c.failed},
		{What: "accepted, and never answered", N: c.acceptedSilently},
		{What: "not accepted, and never answered", N: c.ignored},
	}, v.Rows(), []ledger.Row{
		{What: "recorded transactions", N: v.writes},
		{What: "  of a manager that another one had replaced", N: v.deposedWrites},
	})...)
}

// problems returns an error for everything that must not happen.
func (v verdict) problems(o options) error {
	errs := []error{v.Problems()}
	if v.deposedWrites > 0 || o.suspend && v.writes == 0 {
		errs = append(errs, fmt.Errorf("%d of %d transactions are of managers that another one had replaced", v.deposedWrites, v.writes))
	}
	if killed := len(v.Faults) - ledger.ByThemselves(v.Faults); killed < o.kills || v.Digests < o.digests {
		errs = append(errs, fmt.Errorf("%d kills and %d digests are too few to prove anything", killed, v.Digests))
	}
	return errors.Join(errs...)
}
