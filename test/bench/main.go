// Command bench measures the operator and writes the figures into docs/understand/benchmarks.md.
//
//	bench          all parts
//	bench NAME…    some of them
//
// It runs in the project's directory, with the programs that "make bench" has built in bin. It exits with an error when a figure exceeds
// its bound; the page is written in that case, too.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
	"github.com/scanner-operator/scanner-operator/test/bench/storage"
)

// docs is the path of the page, relative to the project's directory.
const docs = "docs/understand/benchmarks.md"

// part is one section of the page.
type part struct {
	name, title string
	run         func(context.Context, project) (page.Section, error)
}

// parts are all parts, in the order of the page.
var parts = []part{
	{"rematch", "Matching again", workerPart("TestRematch")},
	{"catalog", "Cataloging", workerPart("TestCatalog")},
	{"scale", "Many pods, beside trivy-operator", scalePart},
	{"scale-largest", "A hundred thousand pods", largestPart},
	{"scanners", "Many Scanners", scannersPart},
	{"cluster", "One ClusterScanner", clusterPart},
	{"store", "The store", storePart(storage.SQLite)},
	{"store-postgres", "The store on PostgreSQL", storePart(storage.PostgreSQL)},
	{"store-mariadb", "The store on MariaDB", storePart(storage.MariaDB)},
	{"clair", "Scanning with Clair", clairPart},
	{"noise", "Noise", noisePart},
	{"ui", "The web UI", uiPart},
	{"api", "Live updates and reports of other tools", apiPart},
	{"exports", "Exports, reports and messages", exportsPart},
	{"sboms", "SBOMs: attested, and in other formats", workerPart("TestSBOMs")},
	{"latency", "From a running pod to Slack", latencyPart},
}

// project holds the directories of the project and of the built programs.
type project struct{ root, bin string }

func main() {
	ctrl.SetLogger(logr.Discard()) // silences the libraries that start the API server
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	machine, err := page.ThisMachine()
	if err != nil {
		return err
	}
	wanted, err := choose(names)
	if err != nil {
		return err
	}
	var broken []string
	for _, p := range wanted {
		fmt.Printf("bench: %s\n", p.name)
		section, err := measure(ctx, p, project{root: root, bin: filepath.Join(root, "bin")}, machine)
		if err != nil {
			// A failed part must not prevent the others.
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.name, err)
			broken = append(broken, p.name)
		} else if !section.Kept() {
			broken = append(broken, p.name)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("failed, or a bound is broken: %s; see %s", strings.Join(broken, ", "), docs)
	}
	return nil
}

func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts, nil
	}
	var chosen []part
	for _, name := range names {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no part is called %q; there are %s", name, strings.Join(partNames(), ", "))
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// measure runs a part and writes its section of the page.
func measure(ctx context.Context, p part, project project, machine page.Machine) (page.Section, error) {
	commit, err := page.Commit(ctx, project.root, docs)
	if err != nil {
		return page.Section{}, err
	}
	load, err := page.Load()
	if err != nil {
		return page.Section{}, err
	}
	began := time.Now()
	section, err := p.run(ctx, project)
	if err != nil {
		return section, err
	}
	fmt.Println(section.Text)
	for _, b := range section.Bounds {
		fmt.Printf("%s: %s\n", b.Verdict(), b.What)
	}
	return section, page.Write(filepath.Join(project.root, docs), partNames(), p.name, p.title, section, page.Provenance{
		Machine: machine, Load: load, Commit: commit, Command: "make bench PART=" + p.name, At: began, Took: time.Since(began),
	})
}
