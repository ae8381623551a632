package clair

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/test/clairfeed"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

//go:embed clair.yaml
var clairSettings string

// expected are the configured updaters, by kind of data.
var expected = map[api.DataKind][]string{
	api.Vulnerabilities: {"debian/updater", "osv/go"}, api.Enrichments: {"clair.cvss"},
}

// installation is Clair with its database, the server of its advisories, and a registry.
type installation struct {
	options  Options
	dir      string
	database *process.Process
	clair    *process.Process
	servers  []*server
	// registry is the host of the registry; fetches counts the blobs fetched from it.
	registry string
	fetches  *fetches
	// url is Clair's own address. counted is the address of the proxy that counts requests.
	url, counted string
	requests     *requests
	// settings are the values in Clair's configuration.
	settings settings
	client   *api.Client
}

// settings are the values that are inserted into clair.yaml.
type settings struct {
	Address, Introspection, Connection, Feeds string
	// Sets are the updater sets.
	Sets string
}

// install starts everything and waits until Clair has all its data. The caller must stop the returned installation, even after an error.
func install(ctx context.Context, options Options, dir string) (*installation, error) {
	i := &installation{options: options, dir: dir, fetches: &fetches{counts: map[string]int{}}}
	for _, step := range []func(context.Context) error{i.startRegistry, i.startDatabase, i.startFeeds, i.startClair, i.startCounting} {
		if err := step(ctx); err != nil {
			return i, err
		}
	}
	options.Progress("Clair reads the advisories")
	return i, wait.Eventually(ctx, waitTimeout, wait.Often, i.hasData)
}

func (i *installation) serve(handler http.Handler) (address string, err error) {
	s, err := serve(handler)
	if err != nil {
		return "", err
	}
	i.servers = append(i.servers, s)
	return s.address, nil
}

func (i *installation) startRegistry(context.Context) (err error) {
	i.registry, err = i.serve(i.fetches.of(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	return err
}

// startDatabase runs PostgreSQL from the demo's image, in a file system of its own.
func (i *installation) startDatabase(ctx context.Context) error {
	root := filepath.Join(i.dir, "postgresql")
	if err := unpackPostgreSQL(i.options.Root, root); err != nil {
		return fmt.Errorf("unpack PostgreSQL (it takes root): %w", err)
	}
	_, port, err := process.FreeAddress()
	if err != nil {
		return err
	}
	password := rand.Text()
	if i.database, err = process.Start(i.dir, "postgresql", postgreSQL(root, port, password)); err != nil {
		return fmt.Errorf("start PostgreSQL (it takes root): %w", err)
	}
	i.settings.Connection = fmt.Sprintf("host=127.0.0.1 port=%s user=clair dbname=clair password=%s sslmode=disable", port, password)
	return wait.Eventually(ctx, waitTimeout, wait.Often, func(context.Context) error {
		if i.database.Logged("database system is ready to accept connections") == 0 {
			return errors.Join(i.database.Alive(), errors.New("PostgreSQL has not started yet"))
		}
		return nil
	})
}

// startFeeds serves the advisories from this process. The server sends no ETag; package clairfeed explains why.
func (i *installation) startFeeds(context.Context) error {
	if err := i.publish(0); err != nil {
		return err
	}
	address, err := i.serve(http.FileServer(http.Dir(i.feeds())))
	i.settings.Feeds = "http://" + address
	return err
}

func (i *installation) feeds() string { return filepath.Join(i.dir, "feeds") }

// publish writes the given version of the advisories.
func (i *installation) publish(version int) error {
	invented := filepath.Join(i.dir, "advisories")
	if err := writeAdvisories(invented, version); err != nil {
		return err
	}
	return clairfeed.Write(i.feeds(), time.Now(), filepath.Join(i.options.Root, "test", "fixtures", "advisories"), invented)
}

func (i *installation) startClair(ctx context.Context) error {
	var err error
	if i.settings.Address, _, err = process.FreeAddress(); err != nil {
		return err
	}
	if i.settings.Introspection, _, err = process.FreeAddress(); err != nil {
		return err
	}
	config, err := i.writeSettings("clair", "clair.cvss, debian, osv")
	if err != nil {
		return err
	}
	temporary := filepath.Join(i.dir, "clair")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return err
	}
	command := exec.Command(filepath.Join(i.options.Bin, "clair"))
	command.Env = append(os.Environ(), "CLAIR_MODE=combo", "CLAIR_CONF="+config, "TMPDIR="+temporary)
	if i.clair, err = process.Start(i.dir, "clair", command); err != nil {
		return err
	}
	i.url = "http://" + i.settings.Address
	i.client, err = api.New(api.Options{URL: i.url})
	return errors.Join(err, wait.Eventually(ctx, waitTimeout, wait.Often, func(ctx context.Context) error {
		_, err := i.client.IndexState(ctx)
		return errors.Join(i.clair.Alive(), err)
	}))
}

// writeSettings writes a configuration for Clair and clairctl with the given updater sets.
func (i *installation) writeSettings(name, sets string) (file string, err error) {
	with := i.settings
	with.Sets = sets
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(clairSettings)).Execute(&text, with); err != nil {
		return "", err
	}
	file = filepath.Join(i.dir, name+".yaml")
	return file, os.WriteFile(file, text.Bytes(), 0o600)
}

// startCounting starts the proxy that counts the requests to Clair.
func (i *installation) startCounting(context.Context) error {
	i.requests = newRequests(i.settings.Address)
	address, err := i.serve(i.requests)
	i.counted = "http://" + address
	return err
}

func (i *installation) hasData(ctx context.Context) error {
	for kind, updaters := range expected {
		updates, err := i.client.UpdateOperations(ctx, kind, "")
		if err != nil {
			return errors.Join(i.clair.Alive(), err)
		}
		for _, updater := range updaters {
			if _, found := updates.Latest[updater]; !found {
				return errors.Join(i.clair.Alive(), fmt.Errorf("%s has not run yet", updater))
			}
		}
	}
	return nil
}

// importVersion imports another version of Debian's advisories with clairctl, as for a Clair without internet access: Clair's own update may
// start only after a minute.
func (i *installation) importVersion(ctx context.Context, version int) error {
	if err := i.publish(version); err != nil {
		return err
	}
	config, err := i.writeSettings("clairctl", "debian")
	if err != nil {
		return err
	}
	updates := filepath.Join(i.dir, "updates.json.gz")
	for _, command := range []string{"export-updaters", "import-updaters"} {
		if _, err := i.clairctl(ctx, "--config", config, command, updates); err != nil {
			return err
		}
	}
	return nil
}

// clairctl runs clairctl and returns its output.
func (i *installation) clairctl(ctx context.Context, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(i.options.Bin, "clairctl"), args...)
	command.Dir, command.Stderr = i.dir, &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("clairctl %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}

func (i *installation) stop() error {
	errs := []error{i.clair.Stop(), i.database.Stop()}
	for _, s := range i.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
