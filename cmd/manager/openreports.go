package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/openreports"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// reportsInterval is the time between two rounds of writing Reports.
const reportsInterval = 30 * time.Second

// addOpenReports adds the loop that writes or removes Reports, if the configuration has it. Scanners show its problems.
func (op *operator) addOpenReports(scanners *controllers.ScannerReconciler) error {
	settings := op.config.OpenReports
	if settings.Mode == config.ReportsNone {
		return nil
	}
	direct, err := directClient()
	if err != nil {
		return err
	}
	writer := &openreports.Writer{
		Client: direct, Store: op.store, Exceptions: op.exceptions(), Reported: op.reportedImages, Clock: op.clock, Log: ctrl.Log.WithName("openreports"),
		Remove: settings.Mode == config.ReportsRemove, MaxResults: settings.MaxResults, Watched: op.options.Watched, OnProblem: op.enqueueScanners,
	}
	scanners.ReportsProblem = writer.Problem
	return op.manager.Add(op.periodic(reportsInterval, "openreports", "Writing Reports for other tools", writer.Run))
}

// reportedImages returns the images of which a scanner has a report of its engine, with what they contain and it does not cover. A scanner that is not
// there has none.
func (op *operator) reportedImages(ctx context.Context, uid string) (map[store.NamespacedImage][]string, error) {
	scanners, err := inventory.ListScanners(ctx, op.manager.GetClient(), metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	for _, scanner := range scanners {
		if engine := op.backends.For(scanner); string(scanner.GetUID()) == uid && engine != nil {
			reported, err := op.store.ReportGaps(ctx, uid, engine.Engine())
			for img, gaps := range reported {
				reported[img] = evidence.ImageGaps(gaps, controllers.EngineGaps(engine))
			}
			return reported, err
		}
	}
	return nil, nil
}

// engineGaps returns what the engines of all scanners cover in no image, by engine.
func (op *operator) engineGaps(ctx context.Context) (map[string][]string, error) {
	scanners, err := inventory.ListScanners(ctx, op.manager.GetClient(), metav1.NamespaceAll)
	gaps := make(map[string][]string)
	for _, scanner := range scanners {
		if engine := op.backends.For(scanner); engine != nil {
			gaps[engine.Engine()] = controllers.EngineGaps(engine)
		}
	}
	return gaps, err
}
