// Command vulndb builds a small Grype vulnerability database from advisories in readable files.
//
//	vulndb build --advisories DIR[,DIR…] --out DIR [--built 2026-01-01T00:00:00Z]
//
// It writes out/cache/6 (for the grype command: GRYPE_DB_CACHE_DIR=out/cache) and out/dist/v6, which holds
// the listing and the archive as Grype distributes its own (serve out/dist).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/internal/testdb"
)

// main runs the command with the arguments of the process.
func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, time.Now)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

const usage = "usage: vulndb build --advisories DIR[,DIR…] --out DIR [--built RFC3339]"

// run is the command without global state, for tests.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, now func() time.Time) error {
	if len(args) == 0 || args[0] != "build" {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("vulndb build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dirs := flags.String("advisories", "", "`directories` with advisories; later ones add to earlier ones and correct them")
	out := flags.String("out", "", "output `directory`; its cache and dist are replaced")
	built := flags.String("built", "", "build `time` of the database, RFC 3339 (default: now)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dirs == "" || *out == "" || flags.NArg() > 0 {
		return errors.New(usage)
	}
	// Listings have times in seconds. A database with a more precise time would differ from its listing.
	at := now().Truncate(time.Second)
	if *built != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, *built); err != nil {
			return fmt.Errorf("--built must be a time such as 2026-01-01T00:00:00Z, not %q", *built)
		}
	}
	advisories, err := testdb.Read(strings.Split(*dirs, ",")...)
	if err != nil {
		return err
	}
	result, err := testdb.Build(ctx, advisories, *out, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "built %s: %v records\ncache %s\ndist  %s\n", at.UTC().Format(time.RFC3339), result.Records, result.Cache, result.Dist)
	return nil
}
