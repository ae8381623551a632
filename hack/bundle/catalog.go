package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/operator-framework/operator-registry/alpha/action/migrations"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/pkg/image"
	"github.com/operator-framework/operator-registry/pkg/registry"
)

// writeCatalog writes a file-based catalog of the bundles in the arguments, each DIR=IMAGE. The package's icon and description come from
// the directory -manifests. Channels and upgrade edges come from the bundles.
func writeCatalog(o options) error {
	if len(o.args) == 0 {
		return errors.New("catalog: name the bundles, each as DIR=IMAGE, the oldest first")
	}
	var bundles []*registry.Bundle
	for _, given := range o.args {
		dir, reference, found := strings.Cut(given, "=")
		if !found {
			return fmt.Errorf("catalog: %q is not DIR=IMAGE", given)
		}
		read, err := registry.NewImageInput(image.SimpleReference(reference), dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		bundles = append(bundles, read.Bundle)
	}
	config, err := catalog(bundles, o)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := declcfg.WriteYAML(*config, &text); err != nil {
		return err
	}
	return writeFile(filepath.Join(cmp.Or(o.out, "catalog"), packageName, "catalog.yaml"), text.Bytes())
}

// catalog returns the package, its channels, and each bundle as "opm render --migrate-level=bundle-object-to-csv-metadata" prints it.
func catalog(bundles []*registry.Bundle, o options) (*declcfg.DeclarativeConfig, error) {
	base, err := readBase(o.manifests)
	if err != nil {
		return nil, err
	}
	icon, err := os.ReadFile(filepath.Join(o.manifests, iconFile))
	if err != nil {
		return nil, err
	}
	config := &declcfg.DeclarativeConfig{Packages: []declcfg.Package{{
		Schema: declcfg.SchemaPackage, Name: packageName, DefaultChannel: o.defaultChannel,
		Icon: &declcfg.Icon{Data: icon, MediaType: "image/svg+xml"}, Description: base.Annotations["description"],
	}}}
	for _, one := range bundles {
		blob, err := blobOf(one)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		config.Bundles = append(config.Bundles, blob)
		if err := addToChannels(config, one); err != nil {
			return nil, err
		}
	}
	migrate, err := migrations.NewMigrations("bundle-object-to-csv-metadata")
	if err != nil {
		return nil, err
	}
	return config, migrate.Migrate(config)
}

// addToChannels adds a bundle to the channels that it names.
func addToChannels(config *declcfg.DeclarativeConfig, one *registry.Bundle) error {
	csv, err := one.ClusterServiceVersion()
	if err != nil {
		return err
	}
	replaces, err := csv.GetReplaces()
	if err != nil {
		return err
	}
	for _, name := range one.Channels {
		at := slices.IndexFunc(config.Channels, func(c declcfg.Channel) bool { return c.Name == name })
		if at < 0 {
			at = len(config.Channels)
			config.Channels = append(config.Channels, declcfg.Channel{Schema: declcfg.SchemaChannel, Name: name, Package: packageName})
		}
		config.Channels[at].Entries = append(config.Channels[at].Entries, declcfg.ChannelEntry{Name: one.Name, Replaces: replaces})
	}
	return nil
}

// blobOf returns a bundle in the form of a catalog entry.
func blobOf(one *registry.Bundle) (declcfg.Bundle, error) {
	objects, properties, err := registry.ObjectsAndPropertiesFromBundle(one)
	if err != nil {
		return declcfg.Bundle{}, err
	}
	csv, err := one.ClusterServiceVersion()
	if err != nil {
		return declcfg.Bundle{}, err
	}
	raw, err := json.Marshal(csv)
	if err != nil {
		return declcfg.Bundle{}, err
	}
	related, err := relatedImages(csv, one.BundleImage)
	return declcfg.Bundle{
		Schema: declcfg.SchemaBundle, Name: one.Name, Package: one.Package, Image: one.BundleImage,
		Properties: properties, RelatedImages: related, Objects: objects, CsvJSON: string(raw),
	}, err
}

// relatedImages returns the images of the ClusterServiceVersion and the bundle's own image. A mirror has to copy all of them.
func relatedImages(csv *registry.ClusterServiceVersion, own string) ([]declcfg.RelatedImage, error) {
	var spec struct {
		RelatedImages []declcfg.RelatedImage `json:"relatedImages"`
	}
	if err := json.Unmarshal(csv.Spec, &spec); err != nil {
		return nil, err
	}
	related := slices.Concat(spec.RelatedImages, []declcfg.RelatedImage{{Image: own}})
	slices.SortFunc(related, func(a, b declcfg.RelatedImage) int { return strings.Compare(a.Image, b.Image) })
	return related, nil
}
