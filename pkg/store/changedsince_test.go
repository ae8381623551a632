package store

import (
	"context"
	"errors"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestChanges checks that a second process sees which namespaces another one has changed, and none twice.
func TestChanges(t *testing.T) {
	for _, d := range Databases {
		t.Run(d.Name, func(t *testing.T) {
			database := d.New(t)
			f := openIn(t, database)
			reader := got[*Store](t)(database.OpenReadOnly(t.Context(), f.clock.Now))
			defer reader.Close()
			position := got[ChangePosition](t)(reader.ChangePosition(t.Context()))
			requireChanges := func(what string, namespaces ...string) {
				t.Helper()
				changes := got[Changes](t)(reader.ChangesSince(t.Context(), position))
				equal(t, "namespaces changed by "+what, changes.Namespaces, namespaces)
				position = changes.Position
			}
			requireChanges("nothing")

			f.inNamespace(t, "shop", "uid-1", "app", "web")
			f.inNamespace(t, "bank", "uid-2", "app", "counter")
			f.inNamespace(t, "zoo", "uid-3", "other", "gate")
			requireChanges("workloads that start", "bank", "shop", "zoo")
			f.inNamespace(t, "shop", "uid-1", "app", "web")
			requireChanges("a workload that stays")
			f.saveCatalogs(t, "app")
			requireChanges("an SBOM", "bank", "shop")
			f.report(t, "app", vulnerable("CVE-1", "openssl"))
			requireChanges("a report", "bank", "shop")
			f.saveCatalogs(t, "other")
			f.report(t, "other", vulnerable("CVE-1", "openssl", func(v *finding.Finding) { v.KnownExploited = true }))
			requireChanges("a vulnerability that is exploited now", "bank", "shop", "zoo")
			must(t, f.exec(t.Context(), "write something else", `DELETE FROM memory_exceeded`))
			requireChanges("a transaction that changes no image")
			must(t, f.ReleaseImage(t.Context(), ScannerImage{Scanner: "uid-1", Namespace: "shop", Key: key("app")}, false))
			requireChanges("an image that a scanner has no more", "shop")
		})
	}
}

// TestRevisionOfTheOnlyWriter checks that a process that alone writes reads nothing while it does not write, and knows its own writes at once.
func TestRevisionOfTheOnlyWriter(t *testing.T) {
	f := openIn(t, newSQLiteDatabase(t))
	first := got[int64](t)(f.Revision(t.Context()))
	must(t, f.exec(t.Context(), "write", `DELETE FROM memory_exceeded`))
	equal(t, "revision after a write", got[int64](t)(f.Revision(t.Context())), first+1)
	must(t, f.reader.Close())
	equal(t, "revision that is known already", got[int64](t)(f.Revision(t.Context())), first+1)
	if err := f.write(t.Context(), "fail", func(context.Context, *session) error { return errors.New("no") }); err == nil {
		t.Fatal("the write did not fail")
	}
	if revision, err := f.Revision(t.Context()); err == nil {
		t.Errorf("after a write that may have happened, revision %d is not read again", revision)
	}
}
