package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
)

// opm can serve the committed catalog, and both channels lead to the bundle.
func TestCatalog(t *testing.T) {
	version := bundleVersionIn(t, filepath.Join(root, "bundle"))
	catalog, err := declcfg.LoadFS(t.Context(), os.DirFS(filepath.Join(root, "catalog")))
	if err != nil {
		t.Fatal(err)
	}
	model, err := declcfg.ConvertToModel(*catalog)
	if err != nil {
		t.Fatal(err)
	}
	pkg := model[packageName]
	if pkg == nil || pkg.DefaultChannel.Name != "stable" || pkg.Icon == nil || pkg.Description == "" {
		t.Fatalf("want package %s with default channel stable, icon and description, got %+v", packageName, pkg)
	}
	for _, name := range []string{"stable", "candidate"} {
		head, err := pkg.Channels[name].Head()
		if err != nil || head.Name != packageName+".v"+version {
			t.Errorf("channel %s: want head %s.v%s, got %+v, %v", name, packageName, version, head, err)
		}
	}
	properties, err := property.Parse(catalog.Bundles[0].Properties)
	if err != nil {
		t.Fatal(err)
	}
	if len(properties.GVKs) != 5 || len(properties.CSVMetadatas) != 1 || len(properties.BundleObjects) != 0 {
		t.Errorf("want 5 kinds and the CSV's metadata, and no objects, which catalogs since OpenShift 4.17 refuse; got %d, %d, %d",
			len(properties.GVKs), len(properties.CSVMetadatas), len(properties.BundleObjects))
	}
}

// The newer bundle replaces the older one in the channels.
func TestCatalogOfTwo(t *testing.T) {
	t.Chdir(root)
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "older"), filepath.Join(dir, "newer")
	for _, args := range [][]string{
		{"-version", "0.0.9", "-replaces", "", "-out", older},
		{"-version", "0.1.0", "-replaces", "scanner-operator.v0.0.9", "-out", newer},
	} {
		if err := run(append([]string{"generate"}, args...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{"catalog", "-out", filepath.Join(dir, "two"), older + "=example.com/b:1", newer + "=example.com/b:2"}); err != nil {
		t.Fatal(err)
	}
	catalog, err := declcfg.LoadFS(t.Context(), os.DirFS(filepath.Join(dir, "two")))
	if err != nil {
		t.Fatal(err)
	}
	model, err := declcfg.ConvertToModel(*catalog)
	if err != nil {
		t.Fatal(err)
	}
	head, err := model[packageName].Channels["stable"].Head()
	if err != nil || head.Name != "scanner-operator.v0.1.0" || head.Replaces != "scanner-operator.v0.0.9" {
		t.Errorf("want head scanner-operator.v0.1.0, which replaces v0.0.9; got %+v, %v", head, err)
	}
}

func bundleVersionIn(t *testing.T, dir string) string {
	t.Helper()
	is, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return is.bundle.CSV.Spec.Version.String()
}
