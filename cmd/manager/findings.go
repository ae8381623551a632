package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/report"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// printFindings prints findings from the store, while the manager runs.
func printFindings(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("findings")
	where := addStoreFlags(flags)
	namespace := flags.String("namespace", "", "only images of this namespace (default all)")
	name := flags.String("image", "", "only images whose reference or digest contains this")
	format := flags.String("o", "table", "table or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o: %q is neither table nor json", *format)
	}
	location, err := where.location()
	if err != nil {
		return err
	}
	db, err := location.openReadOnly(ctx)
	if err != nil {
		return err
	}
	images, err := report.Collect(ctx, db, func(use store.UsedImage) bool {
		wanted := strings.Contains(use.Key.Digest+" "+use.PlatformDigest+" "+strings.Join(use.References, " "), *name)
		return wanted && (*namespace == "" || use.Namespace == *namespace)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if *format == "json" {
		return report.WriteJSON(out, images)
	}
	return report.WriteTable(out, images)
}
