package clair

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/quay/claircore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// rounds is the number of rounds of the comparison. The order alternates between rounds. The warm-up round before the first is not
// counted.
const rounds = 9

// overhead compares the two ways of scanning one image whose layers Clair does not know.
type overhead struct {
	image string
	// findings in the image.
	findings int
	// command and backend are the durations of clairctl and of the operator's backend, by round.
	command, backend []time.Duration
}

// ratio returns the ratio of the medians.
func (o overhead) ratio() float64 { return median(o.backend).Seconds() / median(o.command).Seconds() }

func median(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2]
}

// measureOverheads compares clairctl with the backend. Both run on this machine, without the cluster.
func (i *installation) measureOverheads(ctx context.Context) (all []overhead, err error) {
	b, err := i.startBackend(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	for n, name := range []string{images.Web, images.API, images.Migrate} {
		i.options.Progress("%s: clairctl and the backend in turns", name)
		original, err := images.Load(scenario.ImagesDir(i.options.Root), name)
		if err != nil {
			return nil, err
		}
		o := overhead{image: name}
		for round := range rounds + 1 {
			if err := i.compare(ctx, b, &o, original, fmt.Sprintf("twin-%d-%d", n, round), round); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		all = append(all, o)
	}
	return all, nil
}

// compare measures both ways, each with a copy of the image in new layers, and deletes the copies from Clair.
func (i *installation) compare(ctx context.Context, b *backendAlone, o *overhead, original v1.Image, name string, round int) error {
	var took [2]time.Duration
	var found [2]int
	for turn := range 2 {
		way := (round + turn) % 2
		repository := fmt.Sprintf("%s/%s-%d", i.registry, name, way)
		twin, err := twinOf(original, repository)
		if err != nil {
			return err
		}
		digest, err := push(ctx, repository, twin)
		if err != nil {
			return err
		}
		scan := i.scanByCommand
		if way == 1 {
			scan = b.scan
		}
		if took[way], found[way], err = scan(ctx, repository, digest); err != nil {
			return err
		}
		hash, err := claircore.ParseDigest(digest)
		if err == nil {
			err = i.client.Delete(ctx, hash)
		}
		if err != nil {
			return err
		}
	}
	if found[0] == 0 || found[1] == 0 {
		return fmt.Errorf("clairctl reports %d vulnerabilities, the backend %d findings; expected some of each", found[0], found[1])
	}
	if round > 0 {
		o.command, o.backend, o.findings = append(o.command, took[0]), append(o.backend, took[1]), found[1]
	}
	return nil
}

// twinOf returns an image with the same content in unique layers: each begins with a file that contains nonce.
func twinOf(original v1.Image, nonce string) (v1.Image, error) {
	layers, err := original.Layers()
	if err != nil {
		return nil, err
	}
	twins := make([]v1.Layer, len(layers))
	for n, layer := range layers {
		open := func() (io.ReadCloser, error) {
			rest, err := layer.Uncompressed()
			if err != nil {
				return nil, err
			}
			var first bytes.Buffer
			writer := tar.NewWriter(&first) // not closed: the layer's own entries follow
			text := fmt.Sprintf("%s %d", nonce, n)
			err = errors.Join(writer.WriteHeader(&tar.Header{Name: "twin", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}), writeText(writer, text), writer.Flush())
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(&first, rest), rest}, err
		}
		if twins[n], err = tarball.LayerFromOpener(open, tarball.WithCompressedCaching); err != nil {
			return nil, err
		}
	}
	return build.Image(build.Config{Platform: platform, Entrypoint: []string{"/program"}}, twins...)
}

func writeText(writer io.Writer, text string) error {
	_, err := io.WriteString(writer, text)
	return err
}

// scanByCommand measures one run of clairctl and returns its duration and the number of vulnerabilities.
func (i *installation) scanByCommand(ctx context.Context, repository, digest string) (time.Duration, int, error) {
	began := time.Now()
	out, err := i.clairctl(ctx, "report", "--host", i.url, "--out", "json", repository+"@"+digest)
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	var report claircore.VulnerabilityReport
	err = json.Unmarshal(out, &report)
	return took, len(report.Vulnerabilities), err
}

// backendAlone is the backend with a store, without controllers. No image needs a pull secret.
type backendAlone struct {
	engines *clair.Engines
	scanner *v1alpha1.Scanner
	store   *store.Store
	woken   chan struct{}
	stop    func() error
}

func (i *installation) startBackend(ctx context.Context) (*backendAlone, error) {
	settings := config.Default()
	settings.Registries = []config.Registry{{Host: i.registry, PlainHTTP: true}}
	settings.Clair.Instances = []config.ClairInstance{{URL: i.url, Updaters: expectedVulnerabilities()}}
	transport, err := registry.NewTransport(settings.RegistrySettings())
	if err != nil {
		return nil, err
	}
	b := &backendAlone{woken: make(chan struct{}, 1)}
	if b.store, err = store.OpenSQLite(ctx, filepath.Join(i.dir, "alone.db"), time.Now); err != nil {
		return nil, err
	}
	b.scanner = &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "alone", Name: scannerName, UID: "alone"},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{URL: i.url}}}},
	}
	b.engines = clair.NewEngines(clair.Options{
		Store: b.store, Config: settings, Clock: clock.RealClock{}, Log: logr.Discard(), Registries: transport,
		Wake: b.wake, DataChanged: func(context.Context) {}, Random: func() float64 { return 0.5 },
	})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.engines.Run(running) }()
	b.stop = func() error {
		cancel()
		return errors.Join(<-ended, b.store.Close())
	}
	return b, nil
}

// wake is the backend's callback that wakes the controllers.
func (b *backendAlone) wake(context.Context, string) {
	select {
	case b.woken <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// scan calls the backend as the controllers do. It measures from the time when the image is recorded as in use until its report is
// stored.
func (b *backendAlone) scan(ctx context.Context, repository, digest string) (time.Duration, int, error) {
	began := time.Now()
	engine := b.engines.For(b.scanner)
	img := backend.Image{
		Key:       image.Key{Digest: digest, Platform: image.Platform{OS: platform.OS, Architecture: platform.Architecture}},
		Namespace: b.scanner.Namespace, Scanner: string(b.scanner.UID), PullReferences: []string{repository + "@" + digest},
	}
	err := b.store.SetUsage(ctx, store.ImageUsage{
		Scanner: img.Scanner, Namespace: img.Namespace, Key: img.Key, Engine: engine.Engine(),
		Workloads: []store.Workload{{Namespace: img.Namespace, Kind: "Deployment", Name: "web", Container: "web", Repository: repository, Reference: repository}},
	})
	for done := false; err == nil && !done; {
		if done, err = b.step(ctx, engine, img); done || err != nil {
			break
		}
		select {
		case <-b.woken:
		case <-time.After(time.Second): // the first image arrives before the backend has connected to Clair
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	findings, err := b.store.Findings(ctx, store.Subject{PlatformDigest: digest, Engine: engine.Engine()})
	return took, len(findings), err
}

// step reports whether the image has a report.
func (b *backendAlone) step(ctx context.Context, engine backend.Backend, img backend.Image) (bool, error) {
	caller := backendtest.Caller{Store: b.store, Now: time.Now}
	for _, call := range []func(context.Context, backend.Backend, backend.Image) (backend.Progress, error){caller.Catalog, caller.Match} {
		if progress, err := call(ctx, engine, img); err != nil || !progress.Done {
			return false, err
		}
	}
	return true, nil
}
