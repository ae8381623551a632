package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/test/bench/browser"
	"github.com/scanner-operator/scanner-operator/test/bench/clair"
	"github.com/scanner-operator/scanner-operator/test/bench/exports"
	"github.com/scanner-operator/scanner-operator/test/bench/latency"
	"github.com/scanner-operator/scanner-operator/test/bench/noise"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
	"github.com/scanner-operator/scanner-operator/test/bench/restapi"
	"github.com/scanner-operator/scanner-operator/test/bench/scale"
	"github.com/scanner-operator/scanner-operator/test/bench/scanners"
	"github.com/scanner-operator/scanner-operator/test/bench/storage"
)

// workerPart returns a part that runs in the worker's module, since it needs the worker's libraries.
func workerPart(test string) func(context.Context, project) (page.Section, error) {
	return func(ctx context.Context, p project) (section page.Section, err error) {
		result := filepath.Join(p.bin, "bench-result.json")
		if err := os.RemoveAll(result); err != nil {
			return section, err
		}
		command := exec.CommandContext(ctx, filepath.Join(p.bin, "worker-bench.test"), "-test.run", "^"+test+"$", "-test.timeout", "30m")
		command.Dir = filepath.Join(p.root, "worker", "bench")
		job := config.Default().Grype.Catalog.Resources.Limits
		command.Env = append(os.Environ(), "BENCH_RESULT="+result, "BENCH_BIN="+p.bin, fmt.Sprint("BENCH_JOB_MEMORY=", job.Memory().Value()))
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		failed := command.Run()
		raw, err := os.ReadFile(result)
		if err != nil {
			return section, errors.Join(failed, err)
		}
		if err := json.Unmarshal(raw, &section); err != nil {
			return section, err
		}
		// A failure other than an exceeded bound appears only in the test's output.
		if failed != nil && section.Kept() {
			return section, fmt.Errorf("%s: %w", test, failed)
		}
		return section, nil
	}
}

func scalePart(ctx context.Context, p project) (page.Section, error) {
	return withCluster(ctx, p, func(ctx context.Context, options scale.Options) (page.Section, error) {
		var clusters [][]scale.Figures
		for _, pods := range scale.Sizes {
			figures, err := scale.Measure(ctx, options, pods)
			if err != nil {
				return page.Section{}, fmt.Errorf("%d pods: %w", pods, err)
			}
			clusters = append(clusters, figures)
		}
		return scale.Section(clusters), nil
	})
}

func largestPart(ctx context.Context, p project) (page.Section, error) {
	return withCluster(ctx, p, func(ctx context.Context, options scale.Options) (page.Section, error) {
		figures, err := scale.MeasureLargest(ctx, options)
		if err != nil {
			return page.Section{}, err
		}
		return scale.LargestSection(figures), nil
	})
}

// withCluster calls measure with the directories of the programs that a cluster needs.
func withCluster(ctx context.Context, p project, measure func(context.Context, scale.Options) (page.Section, error)) (page.Section, error) {
	assets, err := assetsDir()
	if err != nil {
		return page.Section{}, err
	}
	return measure(ctx, scale.Options{Root: p.root, Bin: p.bin, Assets: assets, Progress: progress})
}

func scannersPart(ctx context.Context, p project) (page.Section, error) {
	return withCluster(ctx, p, scanners.Measure)
}

func clusterPart(ctx context.Context, p project) (page.Section, error) {
	return withCluster(ctx, p, func(ctx context.Context, options scale.Options) (page.Section, error) {
		figures, err := scale.MeasureClusterScanner(ctx, options)
		if err != nil {
			return page.Section{}, err
		}
		return scale.ClusterSection(figures), nil
	})
}

// assetsDir returns the directory with etcd and kube-apiserver.
func assetsDir() (string, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return "", errors.New(`KUBEBUILDER_ASSETS must name the directory of etcd and kube-apiserver: run "make bench"`)
	}
	return assets, nil
}

func clairPart(ctx context.Context, p project) (page.Section, error) {
	assets, err := assetsDir()
	if err != nil {
		return page.Section{}, err
	}
	return clair.Measure(ctx, clair.Options{Root: p.root, Bin: p.bin, Assets: assets, Progress: progress})
}

func progress(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

func storePart(in storage.Database) func(context.Context, project) (page.Section, error) {
	return func(ctx context.Context, _ project) (page.Section, error) { return storage.Measure(ctx, in, progress) }
}

func noisePart(ctx context.Context, p project) (page.Section, error) {
	return noise.Measure(ctx, p.root, progress)
}

func uiPart(ctx context.Context, p project) (page.Section, error) {
	return browser.Measure(ctx, p.root, p.bin)
}

func apiPart(ctx context.Context, p project) (page.Section, error) {
	return restapi.Measure(ctx, p.root, p.bin)
}

func exportsPart(ctx context.Context, p project) (page.Section, error) {
	if _, err := assetsDir(); err != nil {
		return page.Section{}, err
	}
	return exports.Measure(ctx, p.root)
}

func latencyPart(ctx context.Context, _ project) (page.Section, error) { return latency.Measure(ctx) }
