package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/test/ledger"
)

// journal records what happened. Its methods may be called concurrently.
type journal struct {
	// out receives one line for each event.
	out func(string)

	mu     sync.Mutex
	counts map[string]*tally
	faults []ledger.Fault
}

// tally counts a fault.
type tally struct {
	happened, absent, failed int
	lasted                   time.Duration
}

func newJournal(out func(string)) *journal {
	return &journal{out: out, counts: map[string]*tally{}}
}

func (j *journal) log(schedule, name, what string) {
	j.out(fmt.Sprintf("  %s %-11s %-34s %s", time.Now().Format(ledger.Stamp), schedule, name, what))
}

// record records a fault that is over. A fault that could not begin did not happen.
func (j *journal) record(schedule string, f fault, from, to time.Time, err error) {
	text := "happened"
	j.mu.Lock()
	t := j.counts[f.name]
	if t == nil {
		t = &tally{}
		j.counts[f.name] = t
	}
	switch {
	case errors.Is(err, errAbsent):
		t.absent++
		text = err.Error()
	case err != nil:
		t.failed++
		text = "did not succeed: " + err.Error()
	default:
		t.happened++
		if f.lasts {
			t.lasted += to.Sub(from)
			text = "is over"
		}
		if f.delivery {
			j.faults = append(j.faults, ledger.Fault{What: cmp.Or(f.process, f.name), From: from, To: to})
		}
	}
	j.mu.Unlock()
	j.log(schedule, f.name, text)
}

// add records a disturbance that is no fault of a schedule, such as a process that ended by itself.
func (j *journal) add(f ledger.Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, f)
}

// disturbances returns what may have interrupted a delivery so far.
func (j *journal) disturbances() []ledger.Fault {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.faults)
}

// tallies returns the counts so far, by the names of faults.
func (j *journal) tallies() map[string]tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[string]tally{}
	for name, t := range j.counts {
		all[name] = *t
	}
	return all
}
